//! Manual pages. The text behind the options of a command's help becomes the sections that readers of manual pages
//! expect: examples, exit status, notes.

use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Writes the pages of a command and all its subcommands to a directory, which is created.
pub fn write(dir: &Path, mut root: Command) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    root.build();
    write_tree(dir, &root)
}

fn write_tree(dir: &Path, command: &Command) -> io::Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_tree(dir, below)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    render(command, &man, &mut page)?;
    std::fs::write(dir.join(man.get_filename()), page)
}

fn render(command: &Command, man: &Man, page: &mut dyn Write) -> io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    let text = command.get_after_long_help().or(command.get_after_help());
    if let Some(text) = text {
        for (heading, lines) in sections(&text.to_string()) {
            section(heading, &lines).to_writer(page)?;
        }
    }
    if command.get_version().is_some() {
        man.render_version_section(page)?;
    }
    Ok(())
}

/// Sections of the text, in the order of manual pages. A line that ends with a colon and stands at the margin begins
/// a section.
fn sections(text: &str) -> Vec<(&'static str, Vec<&str>)> {
    let mut found = [
        ("NOTES", Vec::new()),
        ("EXAMPLES", Vec::new()),
        ("EXIT STATUS", Vec::new()),
    ];
    for block in text.split("\n\n") {
        let mut lines: Vec<&str> = block.lines().collect();
        let heading = lines.first().copied().unwrap_or_default();
        let at = match heading {
            "Example:" | "Examples:" | "More examples:" => 1,
            "Exit codes:" => 2,
            _ => 0,
        };
        if at > 0 {
            lines.remove(0);
        }
        let section = &mut found[at].1;
        if !section.is_empty() {
            section.push("");
        }
        section.append(&mut lines);
    }
    let filled = found.into_iter().filter(|(_, lines)| !lines.is_empty());
    filled.collect()
}

/// Section whose indented lines stay as they are, and whose other lines are filled.
fn section(heading: &str, lines: &[&str]) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", [heading]);
    let mut literal = false;
    for line in lines {
        let indented = line.starts_with("  ");
        if indented != literal {
            roff.control(if indented { "nf" } else { "fi" }, []);
            literal = indented;
        }
        match *line {
            "" => {
                roff.control("PP", []);
            }
            line => {
                roff.text([roman(line)]);
            }
        }
    }
    if literal {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn examples_and_exit_codes_have_sections() {
        let mut root = Cli::command();
        root.build();
        let run = root.find_subcommand("run").expect("run");
        let mut page = Vec::new();
        render(run, &Man::new(run.clone()), &mut page).expect("a page");
        let page = String::from_utf8(page).expect("text");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at(".SH EXAMPLES") < at("abide run \\-\\-idle 5m"));
        assert!(at(".SH \"EXIT STATUS\"") < at("124"));
        assert!(!page.contains("EXTRA"), "{page}");
    }
}
