//! Settings of a machine in a fleet: its name, its labels, and the rights of other machines on it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use abide_core::fleet::rights::{Machines, Rights};
use serde::Deserialize;

use super::{Config, InvalidSetting, within};

/// Maximum length of the name of a machine and of a label, as in a host name.
const MAX_NAME: usize = 63;
/// Maximum number of labels.
const MAX_LABELS: usize = 32;
/// Shortest time after which sessions count as lost: longer than a restart of the daemon takes.
const SHORTEST_LOST_AFTER: u64 = 30;
/// Times after which a machine that was taken for dead may ask for its timers, in seconds.
const RETURN_AFTER: RangeInclusive<u64> = 1..=3_600;
/// Maximum length of a destination of ssh.
const MAX_DESTINATION: usize = 255;
/// Word for all machines.
const ALL: &str = "*";

/// Rights of other machines on this one. Every machine of the fleet may see; the others are named here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetConfig {
    /// Machines that may type, kill and answer questions here, by name; `*`: all.
    #[serde(rename = "type")]
    pub type_: Vec<String>,
    /// Machines that may start sessions here, by name; `*`: all.
    pub run: Vec<String>,
    /// Destinations of ssh over which machines are called, by name of the machine.
    pub ssh: BTreeMap<String, String>,
    /// Seconds without a failed heartbeat after which this machine asks for its timers, if the others took it for dead
    /// though it ran. After a pause it asks at once. Default: 60.
    pub return_after: Option<u64>,
}

impl FleetConfig {
    /// Rights as the core decides with them.
    pub fn rights(&self) -> Rights {
        Rights {
            type_: machines(&self.type_),
            run: machines(&self.run),
        }
    }
}

fn machines(names: &[String]) -> Machines {
    match names {
        [] => Machines::None,
        names if names.iter().any(|name| name == ALL) => Machines::All,
        names => Machines::Named(names.to_vec()),
    }
}

/// True if this can be the name of a machine or a label.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
}

/// True if `ssh` can take this as a destination, and as nothing else.
fn is_destination(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    !text.is_empty()
        && text.len() <= MAX_DESTINATION
        && !text.starts_with('-')
        && text.chars().all(is_plain)
}

impl Config {
    /// Checks the settings of this machine in a fleet.
    pub(super) fn check_fleet(&self) -> Result<(), InvalidSetting> {
        let form = format!(
            "letters, digits, `-`, `_` and `.`, at most {MAX_NAME}, and begin with a letter or digit"
        );
        if let Some(name) = self.machine.as_ref().filter(|name| !is_name(name)) {
            return Err(InvalidSetting(format!(
                "`machine` must be {form}; got {name:?}"
            )));
        }
        if let Some(label) = self.labels.iter().find(|label| !is_name(label)) {
            return Err(InvalidSetting(format!(
                "each of `labels` must be {form}; got {label:?}"
            )));
        }
        if self.labels.len() > MAX_LABELS {
            return Err(InvalidSetting(format!(
                "`labels` must be at most {MAX_LABELS}; got {}",
                self.labels.len()
            )));
        }
        for (setting, names) in [
            ("fleet.type", &self.fleet.type_),
            ("fleet.run", &self.fleet.run),
        ] {
            if let Some(name) = names.iter().find(|name| *name != ALL && !is_name(name)) {
                return Err(InvalidSetting(format!(
                    "each of `{setting}` must be the name of a machine, or \"*\" for all; got {name:?}"
                )));
            }
        }
        for (name, destination) in &self.fleet.ssh {
            if !is_name(name) {
                return Err(InvalidSetting(format!(
                    "each key of `fleet.ssh` must be the name of a machine; got {name:?}"
                )));
            }
            if !is_destination(destination) {
                return Err(InvalidSetting(format!(
                    "`fleet.ssh.{name}` must be a destination as `ssh` takes it, such as \"user@host\", of at most \
                     {MAX_DESTINATION} bytes; got {destination:?}"
                )));
            }
        }
        if let Some(seconds) = self.fleet.return_after {
            within("fleet.return_after", seconds, RETURN_AFTER, " seconds")?;
        }
        if let Some(seconds) = self.lost_after.filter(|time| *time < SHORTEST_LOST_AFTER) {
            return Err(InvalidSetting(format!(
                "`lost_after` must be at least {SHORTEST_LOST_AFTER} seconds; got {seconds}"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check_fleet().map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn fleet_settings_give_rights() {
        let config = read(
            "machine = \"build-1\"\nlabels = [\"linux\", \"gpu\"]\nlost_after = 600\n[fleet]\n\
             type = [\"desk\"]\nrun = [\"*\"]\n[fleet.ssh]\nci-2 = \"ssh://user@ci.example:2222\"",
        );
        let config = config.expect("a configuration");
        assert_eq!(config.machine.as_deref(), Some("build-1"));
        assert_eq!(config.fleet.ssh["ci-2"], "ssh://user@ci.example:2222");
        let rights = config.fleet.rights();
        assert_eq!(rights.type_, Machines::Named(vec!["desk".into()]));
        assert_eq!(rights.run, Machines::All);
        assert_eq!(FleetConfig::default().rights(), Rights::default());
    }

    #[test]
    fn invalid_fleet_settings_are_refused_with_the_setting_and_the_value() {
        for (text, setting) in [
            ("machine = \"a b\"", "`machine`"),
            ("machine = \"\"", "`machine`"),
            ("machine = \"-a\"", "`machine`"),
            ("labels = [\"a'b\"]", "`labels`"),
            ("lost_after = 1", "`lost_after`"),
            ("[fleet]\nrun = [\"a/b\"]", "`fleet.run`"),
            ("[fleet.ssh]\n\"a/b\" = \"host\"", "`fleet.ssh`"),
            ("[fleet.ssh]\na = \"\"", "`fleet.ssh.a`"),
            ("[fleet.ssh]\na = \"-oProxyCommand=x\"", "`fleet.ssh.a`"),
            ("[fleet.ssh]\na = \"host command\"", "`fleet.ssh.a`"),
            ("[fleet]\nreturn_after = 0", "`fleet.return_after`"),
            ("[fleet]\nsee = [\"a\"]", "see"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(setting), "{refused}");
        }
    }
}
