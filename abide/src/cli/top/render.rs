//! Rendering of `abide top`: lines of text for a screen of a given size. Control characters in text
//! that a command has written are escaped, so that the text cannot control the terminal.

use abide_api::{Message, QuestionDetails, Session, SessionStatus, TimerDetails, TimerStatus};
use abide_core::{Millis, SessionId};
use abide_output::printable::one_line;
use anstyle::{Effects, Style};
use unicode_width::UnicodeWidthStr;

use super::model::{Model, Overlay, Section, answers, is_permission};
use crate::cli::prompt::offers;
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
        }) => log(*session, lines, *scrolled, inside),
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
    let away = match lists.top.trouble.is_some() {
        true => "  the database is away",
        false => "",
    };
    format!(
        " abide {}  {}  {}  {}{away}",
        one_line(&lists.top.daemon.version),
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
            Section::Questions if model.question().is_some_and(is_permission) => {
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

/// Question about a command, and its answers with the rules that they add.
fn answer_lines(details: &QuestionDetails) -> Vec<StyledLine> {
    let text = details.question.text.lines();
    let mut lines: Vec<StyledLine> = text.map(|line| vec![(one_line(line), HEADING)]).collect();
    lines.push(Vec::new());
    for (place, offer) in offers(&details.question).into_iter().flatten().enumerate() {
        let answer = one_line(&offer.answer);
        lines.push(vec![(format!("  {}  {answer}", place + 1), PLAIN)]);
        let rule = |line: &str| vec![(format!("       {}", one_line(line)), FAINT)];
        lines.extend(offer.adds.trim().lines().map(rule));
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

fn log(session: SessionId, lines: &[String], scrolled: usize, rows: usize) -> Vec<StyledLine> {
    let mut shown = vec![vec![(session.to_string(), HEADING)]];
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
    let needs = Section::ALL.map(|section| 1 + (model.len(section) * height(section)).max(1));
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
        let rows = model.len(section);
        if rows == 0 {
            lines.push(vec![(format!("  {}", empty_text(section)), FAINT)]);
            continue;
        }
        let room = ((share - 1) / height(section)).max(1);
        let row = model.row(section);
        let from = row.saturating_sub(room.saturating_sub(1));
        for at in (from..rows).take(room) {
            let mark = if here && at == row { "> " } else { "  " };
            for mut line in row_lines(model, section, at, cols) {
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
    let (totals, agent) = (&model.lists.totals, agent_heading(cols));
    let listed = model.len(section);
    let sessions = section_name("SESSIONS", listed, totals.sessions);
    let timers = section_name("TIMERS", listed, totals.timers);
    match section {
        Section::Questions => section_name("QUESTIONS", listed, totals.questions),
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

/// Lines of one row of a section.
fn row_lines(model: &Model, section: Section, row: usize, cols: usize) -> Vec<StyledLine> {
    let top = &model.lists.top;
    match section {
        Section::Questions => question(model, &top.questions[row]),
        Section::Sessions => vec![session(model, &top.sessions[row], cols)],
        Section::Timers => vec![timer(model, &top.timers[row], cols)],
        Section::Messages => vec![message(model, &top.messages[row])],
    }
}

fn question(model: &Model, details: &QuestionDetails) -> Vec<StyledLine> {
    let question = &details.question;
    // The command continues to run while the question is open.
    let since = model.now.saturating_sub(question.asked_at);
    let ran = show::short(Millis((question.running_for * 1_000.0) as u64 + since));
    let mut agent = one_line(&question.agent);
    if let Some(machine) = &question.machine {
        agent = format!("{agent} on {}", one_line(machine));
    }
    let second = match is_permission(details) {
        true => {
            let words = answers(details).join(" · ");
            vec![
                (format!("  {agent} in {}  ", one_line(&question.cwd)), FAINT),
                (one_line(&words), PLAIN),
            ]
        }
        false => {
            let doing = one_line(&question.doing);
            vec![
                (format!("  {agent}, ran {ran}, {doing}  "), FAINT),
                (one_line(&question.last_line), PLAIN),
            ]
        }
    };
    let first = vec![
        (one_line(&question.question), WARN.bold()),
        (format!("  {}", one_line(&question.command)), PLAIN),
    ];
    vec![first, second]
}

fn session(model: &Model, session: &Session, cols: usize) -> StyledLine {
    let live = session.live_activity.as_ref();
    let (state, colour) = match session.status {
        _ if live.is_some_and(|live| live.waiting_for_input) => ("wants input", WARN),
        SessionStatus::Running => ("running", GOOD),
        SessionStatus::Unreachable => ("unreachable", WARN),
        SessionStatus::Exited | SessionStatus::Failed | SessionStatus::Lost => {
            ("background", FAINT)
        }
    };
    let cpu = match live.and_then(|live| live.cpu) {
        Some(cpu) => format!("{:.0}%", cpu * 100.0),
        None => "-".into(),
    };
    let quiet = show::ago(model.now, session.last_activity);
    let facts = if cols < FULL_COLUMNS {
        format!("{quiet:>7}  ")
    } else {
        let age = show::ago(model.now, session.created_at);
        let memory = memory(live.and_then(|live| live.memory));
        format!("{age:>7}{quiet:>7}{cpu:>6}{memory:>7}  ")
    };
    let mut command = show::first_line(&session.command);
    // The machine is named only for a session of another one.
    if let Some(machine) = &session.machine {
        command = format!("{}: {command}", one_line(machine));
    }
    let last = live.and_then(|live| live.tail.last());
    let last = last.map_or_else(String::new, |line| one_line(line));
    // A name can be typed instead of the id.
    let known_as = match &session.name {
        Some(name) => one_line(name),
        None => session.summary.session_id.0.to_string(),
    };
    let mut line = vec![
        (padded(&known_as, 18), PLAIN),
        (padded(state, 12), colour),
        (facts, PLAIN),
    ];
    if cols >= WIDE_COLUMNS {
        line.push((padded(&one_line(&session.agent), AGENT_COLUMNS), FAINT));
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

fn timer(model: &Model, details: &TimerDetails, cols: usize) -> StyledLine {
    let timer = &details.timer;
    let total = timer.total_duration.0.0;
    let since = model.now.saturating_sub(model.read_at);
    let (state, colour, since) = match timer.status {
        TimerStatus::Paused => ("paused", WARN, 0),
        TimerStatus::RunningBackground => ("background", GOOD, since),
        TimerStatus::Running | TimerStatus::Completed | TimerStatus::Stopped => {
            ("running", GOOD, since)
        }
    };
    let left = timer.remaining_time.0.0.saturating_sub(since);
    let full = usize::try_from((total - left.min(total)) * BAR_COLUMNS as u64 / total.max(1))
        .unwrap_or(BAR_COLUMNS);
    let bar = format!(
        "{}{}",
        "█".repeat(full.min(BAR_COLUMNS)),
        "░".repeat(BAR_COLUMNS - full.min(BAR_COLUMNS))
    );
    let purpose = timer.mission.as_deref().or(timer.reason.as_deref());
    let (left, total) = (show::short(Millis(left)), show::short(Millis(total)));
    let mut line = vec![
        (padded(&timer.timer_id.0.to_string(), 18), PLAIN),
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
        line.push((padded(&one_line(&timer.agent), AGENT_COLUMNS), FAINT));
    }
    line.push((show::first_line(purpose.unwrap_or_default()), PLAIN));
    line
}

fn message(model: &Model, message: &Message) -> StyledLine {
    let age = show::ago(model.now, message.created_at);
    let seen = message.seen_at.is_some();
    let lines: Vec<&str> = message.text.lines().take(2).collect();
    let (state, colour) = if seen { ("seen", FAINT) } else { ("new", GOOD) };
    vec![
        (padded(&one_line(&message.agent), 18), FAINT),
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
    use crate::cli::sample;
    use crate::cli::top::feed::{Lists, Totals};
    use abide_api::cli::Top;
    use abide_core::QuestionId;
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
            top: Top {
                questions: vec![sample::question(json!({
                    "command": hostile, "running_for": 75.0, "last_line": hostile,
                }))],
                sessions: (0..30)
                    .map(|n| {
                        sample::session(json!({
                            "session_id": format!("session_{n:08}"), "waiting_for_input": false,
                            "command": format!("{hostile} 日本語 {n}"),
                            "cpu": 0.93, "memory": 123_u64 << 20, "tail": [hostile],
                        }))
                    })
                    .collect(),
                timers: vec![sample::timer(json!({"reason": "the build"}))],
                messages: vec![sample::message(hostile)],
                ..sample::top()
            },
            totals: Totals {
                questions: 1,
                sessions: 30,
                timers: 2_011,
            },
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
            let held = sample::held_question(&[(
                "always",
                "[[policy.rule]]\nrun = [\"\u{1b}]0;owned\u{7}\"]",
            )]);
            for overlay in [
                None,
                Some(Overlay::Help),
                Some(Overlay::Answers {
                    question: Box::new(held),
                }),
                Some(Overlay::Because {
                    question: QuestionId::from_bits(0),
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
            let top = &mut model.lists.top;
            for session in &mut top.sessions {
                session.command.clone_from(&signs);
                session.live_activity.as_mut().expect("it runs").tail = vec![signs.clone()];
            }
            top.messages = vec![sample::message(&signs)];
            top.messages[0].agent.clone_from(&signs);
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
        model.lists.top.questions[0].question.asked_at = model.now;
        model.now += 25_000;
        let shown = plain(&frame(&mut model, 120, 40)).join("\n");
        assert!(shown.contains("25s"), "{shown}");
        assert!(shown.contains("ran 1m40s"), "{shown}");
    }
}
