//! Rendering of `abide top`: lines of text for a screen of a given size. Control characters in text
//! that a command has written are escaped, so that the text cannot control the terminal.

use abide_core::Millis;
use abide_output::printable::one_line;
use anstyle::{Effects, Style};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::model::{Model, Overlay, Section, answers, needs_words};
use crate::cli::show::{self, FAINT, GOOD, HEADING, WARN};

/// Columns of a timer's progress bar.
const BAR_COLUMNS: usize = 16;
/// Columns of the agent's name.
const AGENT_COLUMNS: usize = 12;
/// Narrowest screen that shows the agent, and a session's last output line beside its command.
const WIDE_COLUMNS: usize = 100;
/// Narrowest screen that shows all columns. A narrower one leaves some out in favour of the command and
/// the reason.
const FULL_COLUMNS: usize = 76;
/// Minimum number of lines of a section: its heading and one row.
const SECTION_MINIMUM: usize = 2;

const PLAIN: Style = Style::new();
const TITLE: Style = Style::new().effects(Effects::INVERT);

const HELP: &str = "\
Tab, Shift-Tab     next and previous section
arrows, j, k       select a row; Home, End, PgUp, PgDn
Enter              output or screen of the selected session; answers of a question about a command
a                  attach to the terminal of the selected session; Ctrl-] comes back
y, n               answer the selected question: continue waiting or allow it once, or no
K, x, Del          end the selected session and everything it started
s                  stop the selected timer for good
p                  pause the selected timer for ten minutes
r                  resume a paused timer
q, Ctrl-C          quit; sessions and timers continue";

/// Line as a list of spans, each with its style.
type StyledLine = Vec<(String, Style)>;

/// Renders the whole screen.
pub fn frame(model: &mut Model, cols: usize, rows: usize) -> Vec<String> {
    let inside = rows.saturating_sub(2);
    let mut lines = vec![filled(title(model), cols, TITLE)];
    let body = match &model.overlay {
        Some(Overlay::Help) => help(inside),
        Some(Overlay::Log {
            session,
            lines,
            scrolled,
            ..
        }) => log(session, lines, *scrolled, inside),
        Some(Overlay::Answers { question }) => answer_lines(question),
        Some(Overlay::Because { .. } | Overlay::Confirm { .. }) | None => {
            sections(model, cols, inside)
        }
    };
    lines.extend(
        body.into_iter()
            .take(inside)
            .map(|line| styled(&line, cols)),
    );
    lines.resize(rows.saturating_sub(1), String::new());
    lines.push(filled(footer(model), cols, TITLE));
    lines.truncate(rows);
    lines
}

fn title(model: &Model) -> String {
    let lists = &model.lists;
    let count = |total: u64, one: &str| match total {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    };
    let version = lists.daemon["version"].as_str().unwrap_or_default();
    let away = match lists.trouble.is_string() {
        true => "  the database is away",
        false => "",
    };
    format!(
        " abide {}  {}  {}  {}{away}",
        one_line(version),
        count(lists.totals.questions, "question"),
        count(lists.totals.sessions, "session"),
        count(lists.totals.timers, "timer"),
    )
}

fn footer(model: &Model) -> String {
    match (&model.overlay, &model.notice) {
        (Some(Overlay::Confirm { ask, .. }), _) => format!(" {ask} y/N"),
        (Some(Overlay::Log { pty: true, .. }), _) => {
            " arrows scroll  a attach  Esc goes back".to_owned()
        }
        (Some(Overlay::Log { .. }), _) => " arrows scroll  Esc goes back".to_owned(),
        (Some(Overlay::Answers { .. }), _) => {
            " number answers  b no, because …  Esc goes back".to_owned()
        }
        (Some(Overlay::Because { words, .. }), _) => {
            format!(" no, because {words}_  (Enter sends it, Esc goes back)")
        }
        (Some(Overlay::Help), _) => " any key goes back".to_owned(),
        (None, Some(notice)) => format!(" {notice}"),
        (None, None) => match model.section {
            Section::Questions if is_about_command(model) => {
                " y once  n no  Enter all answers  Tab next  ? help  q quit"
            }
            Section::Questions => " y continue  n end it  Enter log  Tab next  ? help  q quit",
            Section::Sessions => " Enter log  a attach  K kill  Tab next  ? help  q quit",
            Section::Timers => " p pause  r resume  s stop  Tab next  ? help  q quit",
            Section::Messages => " Tab next  ? help  q quit",
        }
        .to_owned(),
    }
}

/// Returns `true` if the selected question is about a command that was not started.
fn is_about_command(model: &Model) -> bool {
    let questions = model.rows(Section::Questions);
    let question = questions.get(model.row(Section::Questions));
    question.is_some_and(needs_words)
}

/// Question about a command, and its answers with the rules that they add.
fn answer_lines(question: &Value) -> Vec<StyledLine> {
    let whole = question["text"].as_str().unwrap_or_default();
    let mut lines: Vec<StyledLine> = whole
        .lines()
        .map(|line| vec![(one_line(line), HEADING)])
        .collect();
    lines.push(Vec::new());
    let offers = question["held"]["answers"].as_array();
    for (place, offer) in offers.into_iter().flatten().enumerate() {
        lines.push(vec![(
            format!("  {}  {}", place + 1, text(offer, "answer")),
            PLAIN,
        )]);
        let adds = offer["adds"].as_str().unwrap_or_default();
        let rule = |line: &str| vec![(format!("       {}", one_line(line)), FAINT)];
        lines.extend(adds.trim().lines().map(rule));
    }
    lines.push(vec![("  b  no, because …".to_owned(), PLAIN)]);
    lines
}

fn help(rows: usize) -> Vec<StyledLine> {
    let mut lines = vec![Vec::new()];
    lines.extend(HELP.lines().map(|line| vec![(format!("  {line}"), PLAIN)]));
    lines.truncate(rows);
    lines
}

fn log(session: &str, lines: &[String], scrolled: usize, rows: usize) -> Vec<StyledLine> {
    let mut shown = vec![vec![(one_line(session), HEADING)]];
    let room = rows.saturating_sub(1);
    let end = lines.len().saturating_sub(scrolled);
    let from = end.saturating_sub(room);
    let text = |line: &String| vec![(one_line(&line.replace('\t', "    ")), PLAIN)];
    shown.extend(lines[from..end].iter().map(text));
    if lines.is_empty() {
        shown.push(vec![("nothing yet".to_owned(), FAINT)]);
    }
    shown
}

/// Number of lines for each section: all that it needs, or a fair share, with the selected section first.
fn shares(needs: [usize; 4], selected: Section, rows: usize) -> [usize; 4] {
    let mut shares = needs.map(|need| need.min(SECTION_MINIMUM));
    let mut left = rows.saturating_sub(shares.iter().sum());
    let order = [
        selected as usize,
        Section::Questions as usize,
        Section::Sessions as usize,
        Section::Timers as usize,
        Section::Messages as usize,
    ];
    while left > 0 {
        let before = left;
        for section in order {
            if shares[section] < needs[section] && left > 0 {
                shares[section] += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    shares
}

fn sections(model: &Model, cols: usize, rows: usize) -> Vec<StyledLine> {
    let height = |section: Section| if section == Section::Questions { 2 } else { 1 };
    let needs =
        Section::ALL.map(|section| 1 + (model.rows(section).len() * height(section)).max(1));
    let shares = shares(needs, model.section, rows);
    let mut lines = Vec::new();
    for section in Section::ALL {
        let share = shares[section as usize];
        if share == 0 {
            continue;
        }
        let head = heading(model, section, cols);
        let here = model.section == section;
        lines.push(vec![(
            head,
            if here { HEADING.underline() } else { HEADING },
        )]);
        let rows = model.rows(section);
        if rows.is_empty() {
            lines.push(vec![(format!("  {}", empty_text(section)), FAINT)]);
            continue;
        }
        let room = ((share - 1) / height(section)).max(1);
        let row = model.row(section);
        let from = row.saturating_sub(room.saturating_sub(1));
        for (at, value) in rows.iter().enumerate().skip(from).take(room) {
            let mark = if here && at == row { "> " } else { "  " };
            for mut line in row_lines(model, section, value, cols) {
                line.insert(0, (mark.to_owned(), HEADING));
                lines.push(line);
            }
        }
    }
    lines
}

/// Name of a section, with numbers if not all of its rows are listed.
fn section_name(name: &str, listed: usize, total: u64) -> String {
    match total > listed as u64 {
        true => format!("{name} {listed}/{total}"),
        false => name.to_owned(),
    }
}

/// Heading of the column of agents, which narrow screens leave out.
fn agent_heading(cols: usize) -> String {
    match cols < WIDE_COLUMNS {
        true => String::new(),
        false => padded("AGENT", AGENT_COLUMNS),
    }
}

fn heading(model: &Model, section: Section, cols: usize) -> String {
    let (lists, agent) = (&model.lists, agent_heading(cols));
    let sessions = section_name("SESSIONS", lists.sessions.len(), lists.totals.sessions);
    let timers = section_name("TIMERS", lists.timers.len(), lists.totals.timers);
    match section {
        Section::Questions => {
            section_name("QUESTIONS", lists.questions.len(), lists.totals.questions)
        }
        Section::Sessions if cols < FULL_COLUMNS => {
            format!("{sessions:<20}{:<12}{:>7}  COMMAND", "STATE", "QUIET")
        }
        Section::Timers if cols < FULL_COLUMNS => {
            format!("{timers:<20}{:<12}{:>7}  FOR", "STATE", "LEFT")
        }
        Section::Sessions => format!(
            "{sessions:<20}{:<12}{:>7}{:>7}{:>6}{:>7}  {agent}COMMAND",
            "STATE", "AGE", "QUIET", "CPU", "MEM"
        ),
        Section::Timers => format!(
            "{timers:<20}{:<12}{:>7}{:>9}  {:<BAR_COLUMNS$}  {agent}FOR",
            "STATE", "LEFT", "OF", ""
        ),
        Section::Messages => "MESSAGES".into(),
    }
}

fn empty_text(section: Section) -> &'static str {
    match section {
        Section::Questions => "no questions",
        Section::Sessions => "no running sessions",
        Section::Timers => "no timers",
        Section::Messages => "no messages",
    }
}

fn text(value: &Value, field: &str) -> String {
    one_line(value[field].as_str().unwrap_or_default())
}

fn row_lines(model: &Model, section: Section, value: &Value, cols: usize) -> Vec<StyledLine> {
    match section {
        Section::Questions => question(model, value),
        Section::Sessions => vec![session(model, value, cols)],
        Section::Timers => vec![timer(model, value, cols)],
        Section::Messages => vec![message(model, value)],
    }
}

fn question(model: &Model, value: &Value) -> Vec<StyledLine> {
    // The command continues to run while the question is open.
    let asked = value["asked_at"].as_u64().unwrap_or(model.now);
    let before = value["running_for"].as_f64().unwrap_or(0.0) * 1_000.0;
    let ran = show::short(Millis(before as u64 + model.now.saturating_sub(asked)));
    let (doing, mut agent) = (text(value, "doing"), text(value, "agent"));
    if let Some(machine) = value["machine"].as_str() {
        agent = format!("{agent} on {}", one_line(machine));
    }
    let second = match needs_words(value) {
        true => {
            let words = answers(value).join(" · ");
            vec![
                (format!("  {agent} in {}  ", text(value, "cwd")), FAINT),
                (one_line(&words), PLAIN),
            ]
        }
        false => vec![
            (format!("  {agent}, ran {ran}, {doing}  "), FAINT),
            (text(value, "last_line"), PLAIN),
        ],
    };
    let first = vec![
        (text(value, "question"), WARN.bold()),
        (format!("  {}", text(value, "command")), PLAIN),
    ];
    vec![first, second]
}

fn session(model: &Model, value: &Value, cols: usize) -> StyledLine {
    let moment = |field: &str| value[field].as_u64().unwrap_or(model.now);
    let waits = value["waiting_for_input"] == true;
    let (state, colour) = match value["status"].as_str() {
        _ if waits => ("wants input", WARN),
        Some("running") => ("running", GOOD),
        Some("unreachable") => ("unreachable", WARN),
        _ => ("background", FAINT),
    };
    let cpu = match value["cpu"].as_f64() {
        Some(cpu) => format!("{:.0}%", cpu * 100.0),
        None => "-".into(),
    };
    let quiet = show::ago(model.now, moment("last_activity"));
    let facts = if cols < FULL_COLUMNS {
        format!("{quiet:>7}  ")
    } else {
        let age = show::ago(model.now, moment("created_at"));
        let memory = memory(value["memory"].as_u64());
        format!("{age:>7}{quiet:>7}{cpu:>6}{memory:>7}  ")
    };
    // The machine is named only for a session of another one.
    let command = match value["machine"].as_str() {
        Some(machine) => format!("{}: {}", one_line(machine), text(value, "command")),
        None => text(value, "command"),
    };
    let last = value["tail"].as_array().and_then(|tail| tail.last());
    let last = one_line(last.and_then(Value::as_str).unwrap_or_default());
    // A name can be typed instead of the id.
    let known_as = match value["name"].as_str() {
        Some(name) => one_line(name),
        None => text(value, "session_id"),
    };
    let mut line = vec![
        (padded(&known_as, 18), PLAIN),
        (padded(state, 12), colour),
        (facts, PLAIN),
    ];
    if cols >= WIDE_COLUMNS {
        line.push((padded(&text(value, "agent"), AGENT_COLUMNS), FAINT));
    }
    let room = cols.saturating_sub(61 + AGENT_COLUMNS);
    if cols < WIDE_COLUMNS || last.is_empty() {
        line.push((command, PLAIN));
    } else {
        line.push((padded(&command, room / 2), PLAIN));
        line.push((format!("  {last}"), FAINT));
    }
    line
}

fn memory(bytes: Option<u64>) -> String {
    match bytes {
        None => "-".into(),
        Some(bytes) if bytes < 1 << 20 => format!("{}K", bytes >> 10),
        Some(bytes) if bytes < 1 << 30 => format!("{}M", bytes >> 20),
        Some(bytes) => format!("{:.1}G", bytes as f64 / f64::from(1_u32 << 30)),
    }
}

fn timer(model: &Model, value: &Value, cols: usize) -> StyledLine {
    let millis = |field: &str| (value[field].as_f64().unwrap_or(0.0) * 1_000.0) as u64;
    let status = text(value, "status");
    let total = millis("total_duration");
    let since = model.now.saturating_sub(model.read_at);
    let runs = status != "paused";
    let left = millis("remaining_time").saturating_sub(if runs { since } else { 0 });
    let (state, colour) = match status.as_str() {
        "paused" => ("paused", WARN),
        "running_background" => ("background", GOOD),
        _ => ("running", GOOD),
    };
    let full = usize::try_from((total - left.min(total)) * BAR_COLUMNS as u64 / total.max(1))
        .unwrap_or(BAR_COLUMNS);
    let bar = format!(
        "{}{}",
        "█".repeat(full.min(BAR_COLUMNS)),
        "░".repeat(BAR_COLUMNS - full.min(BAR_COLUMNS))
    );
    let purpose = match value["mission"].is_string() {
        true => "mission",
        false => "reason",
    };
    let (left, total) = (show::short(Millis(left)), show::short(Millis(total)));
    let mut line = vec![
        (padded(&text(value, "timer_id"), 18), PLAIN),
        (padded(state, 12), colour),
    ];
    if cols < FULL_COLUMNS {
        line.push((format!("{left:>7}"), PLAIN));
    } else {
        line.push((format!("{left:>7}{total:>9}  "), PLAIN));
        line.push((bar, colour));
    }
    line.push(("  ".to_owned(), PLAIN));
    if cols >= WIDE_COLUMNS {
        line.push((padded(&text(value, "agent"), AGENT_COLUMNS), FAINT));
    }
    line.push((text(value, purpose), PLAIN));
    line
}

fn message(model: &Model, value: &Value) -> StyledLine {
    let age = show::ago(model.now, value["created_at"].as_u64().unwrap_or(model.now));
    let seen = value["seen_at"].is_u64();
    let whole = value["text"].as_str().unwrap_or_default();
    let lines: Vec<&str> = whole.lines().take(2).collect();
    let (state, colour) = if seen { ("seen", FAINT) } else { ("new", GOOD) };
    vec![
        (padded(&text(value, "agent"), 18), FAINT),
        (padded(state, 6), colour),
        (format!("{age:>7}  "), PLAIN),
        (
            one_line(&lines.join("  ")),
            if seen { FAINT } else { PLAIN },
        ),
    ]
}

/// Text truncated or padded to exactly `cols` columns.
fn padded(text: &str, cols: usize) -> String {
    let cut = truncated(text, cols.saturating_sub(1));
    let missing = cols.saturating_sub(cut.width());
    format!("{cut}{}", " ".repeat(missing))
}

/// Text truncated to at most `cols` columns.
fn truncated(text: &str, cols: usize) -> String {
    match cols {
        0 => String::new(),
        cols => show::truncate(text, cols),
    }
}

/// Line with its styles, truncated to the width of the screen.
fn styled(line: &StyledLine, cols: usize) -> String {
    let mut left = cols;
    let mut out = String::new();
    for (text, style) in line {
        let text = truncated(text, left);
        left = left.saturating_sub(text.width());
        if !text.is_empty() {
            out.push_str(&format!(
                "{}{text}{:#}",
                without_disabled_colours(*style),
                without_disabled_colours(*style)
            ));
        }
    }
    out
}

/// Line padded to the width of the screen.
fn filled(text: String, cols: usize, style: Style) -> String {
    let text = truncated(&one_line(&text), cols);
    let missing = cols.saturating_sub(text.width());
    format!("{style}{text}{}{style:#}", " ".repeat(missing))
}

/// Style without its colours if colours are disabled; bold and inverse remain.
fn without_disabled_colours(style: Style) -> Style {
    match abide_engine::config::colour_enabled() {
        true => style,
        false => style.fg_color(None).bg_color(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::feed::{Lists, Totals};
    use serde_json::json;

    fn plain(lines: &[String]) -> Vec<String> {
        lines
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    fn model() -> Model {
        let hostile = "\u{1b}]0;owned\u{7}\u{202e}evil\nnext";
        let lists = Lists {
            daemon: json!({"version": "0.1.0"}),
            questions: vec![json!({
                "question_id": "question_a", "session_id": "session_a", "command": hostile,
                "question": "Command has been idle for 60s. Continue waiting?",
                "running_for": 75.0, "doing": "sleeping", "last_line": hostile,
            })],
            sessions: (0..30)
                .map(|n| {
                    json!({
                        "session_id": format!("session_{n:08}"), "status": "running",
                        "command": format!("{hostile} 日本語 {n}"), "created_at": 0, "last_activity": 0,
                        "cpu": 0.93, "memory": 123_u64 << 20, "tail": [hostile],
                    })
                })
                .collect(),
            timers: vec![json!({
                "timer_id": "timer_a", "status": "running", "total_duration": 100.0,
                "remaining_time": 50.0, "reason": "the build",
            })],
            messages: vec![json!({"agent": "a", "created_at": 0, "seen_at": null, "text": hostile})],
            totals: Totals {
                questions: 1,
                sessions: 30,
                timers: 2_011,
            },
            ..Lists::default()
        };
        Model::new(lists, 61_000)
    }

    #[test]
    fn frame_fits_every_screen_and_escapes_control_characters() {
        for (cols, rows) in [
            (80, 24),
            (120, 40),
            (200, 10),
            (20, 5),
            (1, 1),
            (40, 2),
            (0, 0),
        ] {
            let held = json!({"text": "a\nb", "held": {"answers": [
                {"answer": "always", "adds": "[[policy.rule]]\nrun = [\"\u{1b}]0;owned\u{7}\"]"},
            ]}});
            for overlay in [
                None,
                Some(Overlay::Help),
                Some(Overlay::Answers { question: held }),
                Some(Overlay::Because {
                    question: "question_a".into(),
                    words: "日本語".repeat(40),
                }),
            ] {
                let mut model = model();
                model.overlay = overlay;
                let lines = frame(&mut model, cols, rows);
                assert!(lines.len() <= rows, "{cols}x{rows}");
                for line in plain(&lines) {
                    assert!(line.width() <= cols, "{cols}x{rows}: {line:?}");
                    assert!(!line.contains(['\u{7}', '\u{202e}', '\n']), "{line:?}");
                }
                for line in &lines {
                    assert!(!line.contains("\u{1b}]"), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn wide_character_sequences_fit_the_screen() {
        let signs = "⚠\u{fe0f}".repeat(60);
        for cols in [0, 1, 2, 20, 100, 120, 133] {
            let mut model = model();
            for session in &mut model.lists.sessions {
                session["command"] = json!(signs);
                session["tail"] = json!([signs]);
            }
            model.lists.messages = vec![json!({"agent": signs, "created_at": 0, "text": signs})];
            model.notice = Some(signs.clone());
            for line in plain(&frame(&mut model, cols, 40)) {
                assert!(line.width() <= cols, "{cols}: {line:?}");
            }
        }
    }

    #[test]
    fn every_section_and_the_selected_row_are_shown() {
        let mut model = model();
        model.section = Section::Sessions;
        model.selected[Section::Sessions as usize] = 29;
        let shown = plain(&frame(&mut model, 120, 24)).join("\n");
        for wanted in [
            "QUESTIONS",
            "SESSIONS",
            "TIMERS",
            "MESSAGES",
            "> session_00000029",
            "93%",
            "123M",
            "1 question  30 sessions  2011 timers",
            "TIMERS 1/2011",
            "AGENT",
        ] {
            assert!(shown.contains(wanted), "{wanted} in\n{shown}");
        }
        assert!(shown.contains("████████░░░░░░░░"), "{shown}");
    }

    #[test]
    fn narrow_screen_shows_command_and_reason() {
        let mut model = model();
        let shown = plain(&frame(&mut model, 60, 40)).join("\n");
        assert!(shown.contains("the build"), "{shown}");
        assert!(shown.contains("evil"), "{shown}");
        assert!(shown.contains("COMMAND"), "{shown}");
    }

    #[test]
    fn times_advance_between_two_reads() {
        let mut model = model();
        model.lists.questions[0]["asked_at"] = json!(model.now);
        model.now += 25_000;
        let shown = plain(&frame(&mut model, 120, 40)).join("\n");
        assert!(shown.contains("25s"), "{shown}");
        assert!(shown.contains("ran 1m40s"), "{shown}");
    }
}
