//! `abide doctor --hostile`: attacks the sandbox of this installation with harmless attempts and says which of them were
//! held off. The attacks run in one session, in a workspace of their own; everything they aim at is made here and removed
//! afterwards.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use abide_api::SandboxedBy;
use abide_api::cli::{Hostile, HostileAttack, Run};
use abide_core::Gap;
use abide_engine::config::{Config, NetworkMode, Paths, SandboxMode, home};
use abide_session::sandbox::attacks::{ATTACKS, Attack, CANARY, Expected, Scene, Seen, canary};
use abide_session::sandbox::{OWN_LAYERS, hidden_in_home};
use serde::{Deserialize, Serialize};

use crate::cli::error::CliError;
use crate::cli::show::{self, outln};

/// Time limit of the session.
const LIMIT: &str = "60s";
/// Agent whose settings are attacked.
const AGENT: &str = "default";
/// Variable with a secret name that is given to the session.
const VARIABLE: &str = "HOSTILE_SECRET_TOKEN";

/// Scene as text, for the process inside.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Scene")]
struct SceneText {
    workspace: PathBuf,
    outside: PathBuf,
    in_home: PathBuf,
    secrets: Vec<PathBuf>,
    own: Vec<PathBuf>,
    process: i32,
    port: u16,
    has_network: bool,
    can_write: bool,
    socket: PathBuf,
    abstract_socket: String,
    #[serde(skip_serializing, default = "variable")]
    variable: String,
}

fn variable() -> String {
    VARIABLE.into()
}

/// Outcome of an attack, printed by the process inside.
#[derive(Deserialize, Serialize)]
struct SeenLine {
    number: u16,
    outcome: String,
    says: String,
}

/// Folders and listeners that the attacks aim at. Dropping it removes them.
struct Stage {
    folder: PathBuf,
    in_home: PathBuf,
    own: Vec<PathBuf>,
    /// Layers of all agents.
    layers: PathBuf,
    tcp: TcpListener,
    /// Listeners that only have to exist.
    _unix: [UnixListener; 2],
}

impl Stage {
    fn make(paths: &Paths) -> std::io::Result<Self> {
        let name = format!(".abide-hostile-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name).join("");
        let mut private = fs::DirBuilder::new();
        private.mode(0o700).create(&folder)?;
        let folder = folder.canonicalize()?;
        for made in ["work/.git/hooks", "work/.git/objects", "outside"] {
            fs::create_dir_all(folder.join(made))?;
        }
        for file in ["work/.git/hooks/pre-commit", "work/.git/config"] {
            fs::write(folder.join(file), CANARY)?;
        }
        for attack in ATTACKS {
            fs::write(canary(&folder.join("outside"), attack.number), CANARY)?;
        }
        let in_home = home().join(&name);
        fs::write(&in_home, CANARY)?;
        let abstract_socket = SocketAddr::from_abstract_name(&name)?;
        let unix = [
            UnixListener::bind(folder.join("outside/socket"))?,
            UnixListener::bind_addr(&abstract_socket)?,
        ];
        Ok(Stage {
            folder,
            in_home,
            own: vec![paths.state.clone(), paths.runtime.clone(), paths.token()],
            layers: paths.state.join(OWN_LAYERS),
            tcp: TcpListener::bind(("127.0.0.1", 0))?,
            _unix: unix,
        })
    }

    fn scene(&self, mode: SandboxMode, network: NetworkMode) -> std::io::Result<Scene> {
        let mut secrets = hidden_in_home(&home());
        // The known hosts and the configuration of SSH stay readable.
        secrets.retain(|path| path.exists() && !path.ends_with(".ssh"));
        Ok(Scene {
            workspace: self.folder.join("work"),
            outside: self.folder.join("outside"),
            in_home: self.in_home.clone(),
            secrets,
            own: self.own.clone(),
            process: std::process::id() as i32,
            port: self.tcp.local_addr()?.port(),
            has_network: network == NetworkMode::On,
            can_write: mode == SandboxMode::WorkspaceWrite,
            socket: self.folder.join("outside/socket"),
            abstract_socket: format!(".abide-hostile-{}", std::process::id()),
            variable: variable(),
        })
    }

    /// Words about a file of this attack that has changed.
    fn changed(&self, attack: &Attack) -> Option<String> {
        let outside = canary(&self.folder.join("outside"), attack.number);
        let hooks = ["work/.git/hooks/pre-commit", "work/.git/config"];
        let files: Vec<PathBuf> = match attack.number {
            2 => vec![self.in_home.clone()],
            31 | 33 => hooks.map(|name| self.folder.join(name)).to_vec(),
            _ => vec![outside],
        };
        let left = |path: &&PathBuf| {
            let made = path.join(format!(".abide-hostile-{}", std::process::id()));
            attack.number == 130 && made.exists()
        };
        if let Some(path) = self.own.iter().find(left) {
            return Some(format!("a file was made in '{}'", path.display()));
        }
        let is_changed = |path: &PathBuf| {
            let mode = fs::metadata(path).map_or(0, |found| found.mode() & 0o777);
            fs::read_to_string(path).unwrap_or_default() != CANARY || mode == 0o777
        };
        let changed = files.into_iter().find(is_changed)?;
        Some(format!("'{}' was changed", changed.display()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.in_home);
        let _ = fs::remove_dir_all(&self.folder);
        let name = format!(".abide-hostile-{}", std::process::id());
        for path in &self.own {
            let _ = fs::remove_file(path.join(&name));
        }
        // Writes to the home and temporary folders went to the layers of the agent.
        let inside = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        for agent in inside(self.layers.clone()) {
            for layer in inside(agent.path()) {
                let left = layer.path().join("upper").join(&name);
                let _ = fs::remove_file(&left).or_else(|_| fs::remove_dir_all(&left));
            }
        }
    }
}

/// Makes the attacks from inside the sandbox, and prints a line for each.
pub fn attack(scene: &str) -> Result<u8, CliError> {
    let scene = SceneText::deserialize(&mut serde_json::Deserializer::from_str(scene));
    let scene = scene.map_err(|_| {
        CliError::new("`--attack` is used by `abide doctor --hostile` only").code(2)
    })?;
    for attack in ATTACKS {
        let (outcome, says) = match attack.attempt(&scene) {
            Seen::Refused(why) => ("refused", why),
            Seen::Reached(how) => ("reached", how),
            Seen::NotApplicable(why) => ("skipped", why),
        };
        let outcome = outcome.to_owned();
        let line = serde_json::to_string(&SeenLine {
            number: attack.number,
            outcome,
            says,
        })
        .unwrap_or_default();
        outln!("{line}");
    }
    Ok(0)
}

/// Attacks the sandbox of this installation.
pub fn hostile(paths: &Paths, json: bool) -> Result<u8, CliError> {
    let config = Config::load(&paths.config);
    let config = config.map_err(|fault| CliError::new(super::one_sentence(&fault.to_string())))?;
    let stage = Stage::make(paths).map_err(|fault| {
        CliError::new(format!("the attacks cannot be prepared: {fault}"))
            .next("they need a temporary folder and a home folder that can be written")
    })?;
    let settings = config
        .sandbox
        .of(AGENT, &stage.folder.join("work"), &home());
    let (mode, is_configured) = match settings.mode() {
        SandboxMode::Off => (SandboxMode::WorkspaceWrite, false),
        mode => (mode, true),
    };
    let ran = run(&stage, mode, settings.network())?;
    let report = report(&stage, mode, settings.network(), ran)?;
    drop(stage);
    match json {
        true => show::json(&report),
        false => print(&report, is_configured),
    }
    Ok(u8::from(!report.held))
}

/// Runs the attacks in a session, and returns the session's result.
fn run(stage: &Stage, mode: SandboxMode, network: NetworkMode) -> Result<Run, CliError> {
    let scene = stage.scene(mode, network)?;
    let scene = SceneText::serialize(&scene, serde_json::value::Serializer);
    let scene = scene.unwrap_or_default().to_string();
    let program = std::env::current_exe()?;
    let work = stage.folder.join("work");
    #[expect(
        clippy::disallowed_methods,
        reason = "the sandbox is that of a command which `abide run` starts"
    )]
    let mut command = Command::new(&program);
    command
        .args([
            "run",
            "--json",
            "--timeout",
            LIMIT,
            "--sandbox",
            mode.as_str(),
        ])
        .arg("--cwd")
        .arg(&work)
        .arg("--")
        .arg(&program)
        .args(["doctor", "--attack", &scene])
        .env(VARIABLE, "secret")
        .stdin(Stdio::null());
    let output = command.output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        CliError::new(format!("the attacks could not be run: {}", said.trim()))
    })
}

fn report(
    stage: &Stage,
    mode: SandboxMode,
    network: NetworkMode,
    ran: Run,
) -> Result<Hostile, CliError> {
    let seen: Vec<SeenLine> = ran
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if seen.len() != ATTACKS.len() {
        let why = match (&ran.ended.error, &ran.stderr) {
            (Some(error), _) => error,
            (None, said) if !said.is_empty() => said,
            (None, _) => "the session ended early",
        };
        return Err(CliError::new(format!(
            "the attacks could not be run: {}",
            super::one_sentence(why)
        ))
        .next("`abide doctor` says what to do"));
    }
    let summary = ran.ended.session.map(|session| session.summary);
    let by = summary.as_ref().and_then(|summary| summary.sandboxed_by);
    let gaps = summary.map_or_else(Vec::new, |summary| summary.sandbox_gaps);
    let attacks: Vec<HostileAttack> = ATTACKS
        .iter()
        .zip(seen)
        .map(|(attack, seen)| judged(attack, seen, stage.changed(attack), &gaps, by))
        .collect();
    let is_sandboxed = by.is_some_and(|by| by != SandboxedBy::Off);
    let none_failed = attacks.iter().all(|attack| attack.result != "failed");
    Ok(Hostile {
        mode: mode.as_str().into(),
        network: network.as_str().into(),
        sandboxed_by: by.map_or_else(String::new, |by| by.as_str().to_owned()),
        sandbox_gaps: gaps,
        held: is_sandboxed && none_failed,
        attacks,
    })
}

fn judged(
    attack: &Attack,
    seen: SeenLine,
    changed: Option<String>,
    gaps: &[String],
    by: Option<SandboxedBy>,
) -> HostileAttack {
    let is_good = match (attack.expected, seen.outcome.as_str()) {
        (_, "skipped") => true,
        (Expected::Refused, outcome) => outcome == "refused" && changed.is_none(),
        (Expected::Unchanged, _) => changed.is_none(),
        (Expected::Works, outcome) => outcome == "reached" && seen.says == "succeeded",
    };
    let is_weaker = by == Some(SandboxedBy::Landlock);
    let is_gap = |gap: Gap| gaps.iter().any(|known| known == gap.as_str());
    let result = match (is_good, seen.outcome.as_str()) {
        (true, "skipped") => "skipped",
        (true, _) => "ok",
        (false, _) if attack.gap.is_some_and(is_gap) => "gap",
        (false, _) if attack.needs_namespaces && is_weaker => "gap",
        (false, _) => "failed",
    };
    let says = match (attack.expected, changed) {
        (_, Some(changed)) => changed,
        (Expected::Unchanged, None) if seen.outcome == "reached" => {
            "nothing changed outside".into()
        }
        _ => seen.says,
    };
    HostileAttack {
        number: attack.number,
        attack: attack.what.into(),
        expected: match attack.expected {
            Expected::Refused => "refused".into(),
            Expected::Unchanged => "unchanged".into(),
            Expected::Works => "works".into(),
        },
        result: result.into(),
        says,
    }
}

fn print(report: &Hostile, is_configured: bool) {
    if !is_configured {
        outln!(
            "No sandbox is configured for commands of agents. This is a trial of the mode `workspace-write`.\n"
        );
    }
    let bold = show::HEADING;
    outln!(
        "{bold}   # result   {:<52} expected   details{bold:#}",
        "attack"
    );
    let mut attacks: Vec<&HostileAttack> = report.attacks.iter().collect();
    attacks.sort_by_key(|attack| attack.number);
    for (row, attack) in attacks.into_iter().enumerate() {
        let colour = match attack.result.as_str() {
            "ok" => show::GOOD,
            "failed" => show::BAD,
            _ => show::WARN,
        };
        outln!(
            "{:>4} {colour}{:<8}{colour:#} {:<52} {:<10} {}",
            row + 1,
            attack.result,
            attack.attack,
            attack.expected,
            abide_output::printable::one_line(&attack.says)
        );
    }
    let count = |word: &str| {
        let all = report.attacks.iter();
        all.filter(|attack| attack.result == word).count()
    };
    outln!(
        "\n{} ok, {} failed, {} known gaps, {} skipped. Mode {}, network {}, enforced by {}.",
        count("ok"),
        count("failed"),
        count("gap"),
        count("skipped"),
        report.mode,
        report.network,
        report.sandboxed_by
    );
    for gap in &report.sandbox_gaps {
        outln!("Gap: {gap}.");
    }
}
