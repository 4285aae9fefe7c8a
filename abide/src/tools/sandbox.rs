//! Sandbox of a command that a tool starts: what the call asks for, and the environment that fits it.

use std::ffi::OsString;
use std::path::Path;

use abide_api::arguments::{NeededPermissions, Needs, NetworkName, SandboxLess, SandboxName, Text};
use abide_engine::Handle;
use abide_engine::config::{NetworkMode, SandboxMode};
use abide_engine::sandbox::{
    SandboxChoice, SandboxSubject, SandboxWish, WishOf, confine_environment,
};
use abide_session::sandbox::{Plan, hidden_in_home};

use super::args::full_path;
use super::{BadInput, Context};

/// Fields of a call that are about its sandbox.
pub(super) struct SandboxArgs {
    pub sandbox: Option<SandboxName>,
    pub network: Option<NetworkName>,
    pub needs: Option<Needs>,
    pub justification: Option<Text>,
}

type Variable = (OsString, OsString);

impl SandboxArgs {
    /// Chooses the sandbox, and the environment that a command inherits in it.
    pub fn choose(
        self,
        context: &Context,
        handle: &Handle,
        given: &[(OsString, Option<OsString>)],
    ) -> Result<(SandboxChoice, Vec<Variable>), BadInput> {
        let subject = SandboxSubject {
            config: handle.config(),
            paths: handle.paths(),
            agent: &context.agent.0,
            root: &context.root,
        };
        let wish = SandboxWish {
            mode: self.sandbox.map(|SandboxName(mode)| match mode {
                SandboxLess::ReadOnly => SandboxMode::ReadOnly,
                SandboxLess::WorkspaceWrite => SandboxMode::WorkspaceWrite,
            }),
            network: self.network.map(|NetworkName(())| NetworkMode::Off),
        };
        let of = match context.sees_all {
            true => WishOf::Person,
            false => WishOf::Agent,
        };
        let choice = subject.choose(of, wish);
        let choice = choice.map_err(|refused| BadInput(refused.0))?;
        let mut env = context.env.to_vec();
        if let SandboxChoice::Plan(plan) = &choice {
            if let Some(Needs(needs)) = &self.needs {
                ask_for_more(needs, self.justification.as_ref(), plan, context)?;
            }
            let is_ours = |name: &OsString| name.to_str().is_some_and(|n| n.starts_with("ABIDE_"));
            if let Some((name, _)) = given.iter().find(|(name, _)| is_ours(name)) {
                return Err(BadInput(format!(
                    "`env` must not set `{}` in a sandbox: names that begin with ABIDE_ belong to abide.",
                    name.to_string_lossy()
                )));
            }
            confine_environment(&mut env);
        }
        Ok((choice, env))
    }
}

/// Puts the question whether a command may have more than its sandbox permits. Secrets and the files of abide itself are
/// refused without a question.
fn ask_for_more(
    needs: &NeededPermissions,
    justification: Option<&Text>,
    plan: &Plan,
    context: &Context,
) -> Result<(), BadInput> {
    if justification.is_none_or(|text| text.0.trim().is_empty()) {
        return Err(BadInput(
            "`needs` goes with `justification`, one sentence that tells a person why.".into(),
        ));
    }
    let hidden = hidden_in_home(&plan.home);
    for text in needs.write.iter().chain(&needs.read) {
        let path = full_path(text, context);
        let path = path.canonicalize().unwrap_or(path);
        let touches = |other: &Path| path.starts_with(other) || other.starts_with(&path);
        let never = hidden.iter().chain(&plan.hide).chain(&plan.own);
        if let Some(never) = never.into_iter().find(|never| touches(never)) {
            return Err(BadInput(format!(
                "`needs` names '{}', and '{}' is never shown to a sandbox.",
                path.display(),
                never.display()
            )));
        }
    }
    Err(BadInput(
        "`needs` was not granted: no person can be asked about a sandbox here. Run without `needs`, or have the user \
         change `[sandbox]` in config.toml."
            .into(),
    ))
}
