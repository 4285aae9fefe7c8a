//! Sandbox of a command that a tool starts: what the call asks for, and the environment that fits it.

use std::ffi::OsString;
use std::path::Path;

use abide_api::arguments::{NeededPermissions, Needs, NetworkArgument, SandboxArgument, Text};
use abide_core::{SandboxedBy, shorten};
use abide_engine::config::SandboxMode;
use abide_engine::gate_plan::{self, GateConfig, InvalidGate};
use abide_engine::sandbox::{
    SandboxChoice, SandboxSubject, SandboxWish, WishOf, confine_environment,
};
use abide_engine::{BeyondSettings, Handle};
use abide_output::printable::one_line;
use abide_session::sandbox::{
    Network, Plan, UNWRITABLE, all_hidden, landlock_gaps, writes_already,
};
use serde_json::{Map, Value};

use super::args::{full_path, shown_text};
use super::{BadInput, Context};

/// Longest justification that a person is shown, in characters.
const JUSTIFICATION_CHARS: usize = 500;

/// Fields of a call that are about its sandbox.
pub(super) struct SandboxArgs {
    pub sandbox: Option<SandboxArgument>,
    pub network: Option<NetworkArgument>,
    pub needs: Option<Needs>,
    pub justification: Option<Text>,
}

type Variable = (OsString, OsString);

/// Sandbox of a command, and the environment that the command inherits in it.
pub(super) struct ChosenSandbox {
    pub sandbox: SandboxChoice,
    pub env: Vec<Variable>,
    /// Permissions beyond the settings: a person has to approve the command.
    pub beyond_settings: Option<BeyondSettings>,
}

impl SandboxArgs {
    /// Chooses the sandbox. With `needs` it is the one that a person would have to approve.
    pub fn choose(
        self,
        context: &Context,
        handle: &Handle,
        given: &[(OsString, Option<OsString>)],
    ) -> Result<ChosenSandbox, BadInput> {
        let subject = SandboxSubject {
            config: &handle.config(),
            paths: handle.paths(),
            policy: handle.policy(),
            agent: &context.agent,
            conversation: context.conversation.as_ref(),
            root: &context.root,
            env: &context.env,
        };
        let wish = SandboxWish {
            mode: self.sandbox.as_ref().map(|mode| mode.0),
            network: self.network.as_ref().map(|network| network.0),
        };
        let of = match context.is_person {
            true => WishOf::Person,
            false => WishOf::Agent,
        };
        let choice = subject.choose(of, wish);
        let mut sandbox = choice.map_err(|refused| BadInput::new(refused.0))?;
        let mut env = context.env.to_vec();
        if let SandboxChoice::Plan(_) = &sandbox {
            let is_ours = |name: &OsString| name.to_str().is_some_and(|n| n.starts_with("ABIDE_"));
            if let Some((name, _)) = given.iter().find(|(name, _)| is_ours(name)) {
                return Err(BadInput::about(
                    "env",
                    format!(
                        "must not set `{}` in a sandbox: names that begin with ABIDE_ belong to abide.",
                        name.to_string_lossy()
                    ),
                ));
            }
        }
        let more = self.apply_needs(&mut sandbox, &subject, context)?;
        let weaker = match &mut sandbox {
            SandboxChoice::Plan(plan) if !context.is_person => accept_weaker(plan, context, handle),
            _ => None,
        };
        let beyond_settings = match (more, weaker) {
            (Some(more), Some(weaker)) => Some(BeyondSettings {
                why: format!("{}; {}", weaker.why, more.why),
                weaker: None,
            }),
            (more, weaker) => more.or(weaker),
        };
        confine_environment(&sandbox, &mut env);
        Ok(ChosenSandbox {
            sandbox,
            env,
            beyond_settings,
        })
    }

    /// Adds to the sandbox what the call needs beyond it. `None`: it needs nothing more.
    fn apply_needs(
        &self,
        sandbox: &mut SandboxChoice,
        subject: &SandboxSubject<'_>,
        context: &Context,
    ) -> Result<Option<BeyondSettings>, BadInput> {
        let (Some(Needs(needs)), true) = (&self.needs, *sandbox != SandboxChoice::Off) else {
            return Ok(None);
        };
        let justification = shown_justification(self.justification.as_ref())?;
        let mut wanted = match sandbox {
            SandboxChoice::Plan(plan) => widen(plan, needs, subject, context)?,
            SandboxChoice::Off | SandboxChoice::Impossible(_) => Vec::new(),
        };
        if needs.no_sandbox {
            wanted = vec!["run outside the sandbox".into()];
            *sandbox = SandboxChoice::Off;
        }
        Ok((!wanted.is_empty()).then(|| BeyondSettings {
            why: format!(
                "asks for more than its sandbox permits: {}. The agent says: \"{justification}\"",
                wanted.join(", ")
            ),
            weaker: None,
        }))
    }
}

/// Finds out what this machine can enforce, before the sandbox of a command of an agent is chosen.
pub(super) async fn probe_before(
    handle: &Handle,
    context: &Context,
    arguments: &Map<String, Value>,
) {
    if context.is_person || !arguments.contains_key("command") {
        return;
    }
    let config = handle.config();
    let home = abide_engine::config::home();
    let settings = config.sandbox.of(&context.agent.0, &context.root, &home);
    if settings.mode() != SandboxMode::Off || arguments.contains_key("sandbox") {
        let conversation = context.conversation.as_ref();
        let at_least = settings.at_least.into();
        let policy = handle.policy();
        let wanted = policy.least_accepted(at_least, &context.agent, conversation, &context.root);
        handle.sandbox_probe().run_unless_known(wanted).await;
    }
}

/// Accepts the strongest mechanism that this machine can enforce, if that is weaker than the settings want and a person can
/// be asked about it. Otherwise the start fails with the reason.
fn accept_weaker(plan: &mut Plan, context: &Context, handle: &Handle) -> Option<BeyondSettings> {
    let found = handle.sandbox_probe().found()?;
    let strongest = found.strongest;
    let can_run = match strongest {
        SandboxedBy::Off => false,
        SandboxedBy::Landlock => plan.network.gate().is_none(),
        SandboxedBy::Bubblewrap | SandboxedBy::Namespaces => true,
    };
    let reaches_a_person = context.asking.reaches_a_person() || handle.watchers() > 0;
    if strongest >= plan.at_least || !can_run || !reaches_a_person {
        return None;
    }
    plan.at_least = strongest;
    let mode = plan.mode;
    let gaps: Vec<&str> = match strongest {
        SandboxedBy::Landlock => landlock_gaps(mode).iter().map(|gap| gap.as_str()).collect(),
        SandboxedBy::Off | SandboxedBy::Bubblewrap | SandboxedBy::Namespaces => Vec::new(),
    };
    let gaps = match gaps.is_empty() {
        true => String::new(),
        false => format!(", in which {}", gaps.join(", ")),
    };
    Some(BeyondSettings {
        why: format!(
            "the sandbox `{}` that the settings want cannot be enforced here: {}. A yes runs it in a weaker one, `{}`{gaps}",
            mode.as_str(),
            one_line(&found.why_not_stronger),
            strongest.as_str(),
        ),
        weaker: Some(strongest),
    })
}

/// Justification of a call for the person who is asked.
fn shown_justification(given: Option<&Text>) -> Result<String, BadInput> {
    match given.map(|text| text.0.trim()).unwrap_or_default() {
        "" => Err(BadInput::about(
            "needs",
            "goes with `justification`, one sentence that tells a person why.",
        )),
        text => Ok(shorten(&one_line(text), JUSTIFICATION_CHARS)),
    }
}

/// Adds what a call needs to its sandbox, and returns it in words for the person who has to approve it. None: the sandbox
/// permits all of it. Secrets and the files of abide itself are refused without a question.
fn widen(
    plan: &mut Plan,
    needs: &NeededPermissions,
    subject: &SandboxSubject<'_>,
    context: &Context,
) -> Result<Vec<String>, BadInput> {
    let mut wanted = needed_paths(plan, needs, context)?;
    if needs.network.iter().any(|name| name == "on") {
        if plan.network != Network::On {
            plan.network = Network::On;
            wanted.push("use the network of the machine without limits".into());
        }
        return Ok(wanted);
    }
    let modes = ["off", "allowlist"];
    if let Some(mode) = needs
        .network
        .iter()
        .find(|name| modes.contains(&name.as_str()))
    {
        let why = format!("must be \"on\" or a list of host names; got \"{mode}\".");
        return Err(BadInput::about("needs.network", why));
    }
    let refused =
        |why: InvalidGate| BadInput::about("needs.network", format!("has a wrong name: {why}."));
    gate_plan::check_names(&needs.network).map_err(|why| refused(why.into()))?;
    let gate = match &plan.network {
        // A yes opens the names, and no port of the command on this machine.
        Network::Off => {
            let only_names = GateConfig {
                publish: false,
                ..subject.bare_gate()
            };
            Some(gate_plan::make(&only_names).map_err(refused)?)
        }
        Network::Allowlist(gate) => Some(gate.clone()),
        Network::On => None,
    };
    if let Some(gate) = gate {
        let names = gate_plan::missing_names(&gate, &needs.network).map_err(refused)?;
        if !names.is_empty() {
            plan.network =
                Network::Allowlist(gate_plan::add_names(&gate, &names).map_err(refused)?);
            wanted.push(format!("connect to {}", one_line(&names.join(", "))));
        }
    }
    Ok(wanted)
}

/// Adds the paths that a call needs to its sandbox, and returns what a person has to approve.
fn needed_paths(
    plan: &mut Plan,
    needs: &NeededPermissions,
    context: &Context,
) -> Result<Vec<String>, BadInput> {
    let hidden = all_hidden(plan);
    let refused = |path: &Path, why: String| {
        BadInput::about("needs", format!("names '{}', {why}.", path.display()))
    };
    let mut wanted = Vec::new();
    for (text, writes) in (needs.write.iter().map(|path| (path, true)))
        .chain(needs.read.iter().map(|path| (path, false)))
    {
        if text.contains('\0') {
            let why = format!(
                "must not have a NUL byte in a path; got {}.",
                shown_text(text)
            );
            return Err(BadInput::about("needs", why));
        }
        let path = full_path(text, context);
        let path = path.canonicalize().unwrap_or(path);
        // In a folder of the system that is granted they stay hidden.
        let mut own = plan.own.iter().chain(&plan.hide).chain([&plan.home]);
        let mut is_around =
            |other: &Path| other.starts_with(&path) && own.any(|own| other.starts_with(own));
        let never = hidden
            .iter()
            .find(|never| path.starts_with(never) || is_around(never));
        if let Some(never) = never {
            let why = format!("and '{}' is never shown to a sandbox", never.display());
            return Err(refused(&path, why));
        }
        // A protected name of the workspace that does not exist yet can be granted like one that does.
        if !path.exists() && !path.starts_with(&plan.workspace.path) {
            let why = "which does not exist; name the folder that it would be in";
            return Err(refused(&path, why.into()));
        }
        // What is not hidden can be read without asking.
        if !writes || writes_already(plan, &path) {
            continue;
        }
        let kept = UNWRITABLE.map(Path::new);
        if let Some(kept) = kept
            .iter()
            .find(|kept| path.starts_with(kept) || kept.starts_with(&path))
        {
            let why = format!("and no sandbox can write '{}'", kept.display());
            return Err(refused(&path, why));
        }
        wanted.push(format!("write {}", one_line(&path.to_string_lossy())));
        plan.write.push(path);
    }
    Ok(wanted)
}
