//! Consistency of the guide: every page is in its summary, every link has a target, and every setting is documented.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{none, root};

/// Pages by path within the guide.
fn pages() -> BTreeMap<PathBuf, String> {
    let source = root().join("guide/src");
    let mut found = BTreeMap::new();
    let mut open = vec![source.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("the guide").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let text = std::fs::read_to_string(&path).expect("a page");
                let name = path.strip_prefix(&source).expect("within the guide");
                found.insert(name.to_owned(), text);
            }
        }
    }
    assert!(!found.is_empty(), "the guide has no pages");
    found
}

/// Lines of a page outside of code blocks, without inline code.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// Link targets of a page.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let starts = text.split("](").skip(1);
    starts
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .filter(|link| !link.starts_with("https://") && !link.starts_with("http://"))
        .collect()
}

/// Anchors of the headings.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        names.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    names
}

/// A link as a path within the guide, resolved from its page.
fn resolved(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

#[test]
fn every_link_of_the_guide_has_a_target() {
    let pages = pages();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => Some(page.clone()),
                path => resolved(page, path),
            };
            let there = target.and_then(|target| pages.get(&target));
            let leads = there.is_some_and(|there| {
                anchor.is_empty() || anchors(there).iter().any(|name| name == anchor)
            });
            if !leads {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    none(broken, "These links of the guide lead nowhere:");
}

#[test]
fn every_page_of_the_guide_is_in_its_summary() {
    let pages = pages();
    let summary = links(&pages[Path::new("SUMMARY.md")]);
    let missing = pages
        .keys()
        .map(|page| page.display().to_string())
        .filter(|page| page != "SUMMARY.md" && !summary.contains(page))
        .collect();
    none(missing, "Name these pages in guide/src/SUMMARY.md:");
}

/// Names of the fields of a struct, from its source.
fn fields(source: &str, structure: &str) -> Vec<String> {
    let path = root().join(source);
    let text = std::fs::read_to_string(path).expect("the source");
    let begin = format!("struct {structure} {{\n");
    let body = text.split_once(&begin).expect("the structure").1;
    let body = body.split_once("\n}").expect("its end").0;
    let name = |line: &str| {
        let (name, _) = line.trim().trim_start_matches("pub ").split_once(": ")?;
        let name = name.trim_start_matches("r#");
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        plain.then(|| name.to_owned())
    };
    body.lines().filter_map(name).collect()
}

#[test]
fn every_setting_is_in_the_guide() {
    let page = root().join("guide/src/reference/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let mut settings = fields("crates/engine/src/config.rs", "Config");
    settings.extend(fields("crates/engine/src/config/wakers.rs", "RawWaker"));
    assert!(settings.len() > 12, "{settings:?}");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let told = |setting: &String| {
        let name = format!("`{setting}`");
        rows.iter()
            .filter_map(|row| row.split('|').nth(1))
            .any(|key| key.contains(&name))
    };
    let missing = settings.into_iter().filter(|name| !told(name)).collect();
    none(
        missing,
        "Tell of these in guide/src/reference/configuration.md:",
    );
}
