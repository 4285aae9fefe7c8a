//! Network gate of a sandbox, as the keeper gets it: ports to listen on, and the configuration of the gate process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use abide_gate::agent_ports::{MAX_AGENT_PORTS, PublishedBy};
use abide_gate::allowlist::{Allowlist, Pattern, PatternError};
pub use abide_gate::process::Config as GateConfig;
use abide_session::sandbox::GatePlan;
use abide_session::sandbox::gate_sockets::MAX_PORTS;

/// Variables that name proxies, in capitals. Programs read them in small letters too.
const PROXY_VARIABLES: [&str; 5] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
];

pub fn is_proxy_variable(name: &str) -> bool {
    PROXY_VARIABLES
        .iter()
        .any(|variable| variable.eq_ignore_ascii_case(name))
}

/// Configuration of a gate that allows nothing yet, dials through the proxies of this environment, and never publishes the
/// ports of the daemon.
pub fn bare(own_ports: Vec<u16>, env: &[(OsString, OsString)]) -> GateConfig {
    let proxies = env.iter().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| is_proxy_variable(name))?;
        Some((name.to_owned(), value.to_str()?.to_owned()))
    });
    GateConfig {
        publish: true,
        never_publish: own_ports,
        proxy_variables: proxies.collect::<BTreeMap<_, _>>(),
        ..GateConfig::default()
    }
}

/// Reason why a gate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InvalidGate {
    /// A name that is allowed is none.
    #[error(transparent)]
    Name(#[from] PatternError),
    /// The gate would listen at too many ports.
    #[error("`sandbox.allow` and `sandbox.host_ports` name more than {MAX_PORTS} ports")]
    TooManyPorts,
    /// The plan of the gate cannot be read or written.
    #[error(transparent)]
    Plan(#[from] serde_json::Error),
}

/// Plan of a gate with this configuration.
pub fn make(config: &GateConfig) -> Result<GatePlan, InvalidGate> {
    let allow = Allowlist::parse(&config.allow)?;
    let ports = allow.ports();
    if ports.len() + config.host_ports.len() > MAX_PORTS {
        return Err(InvalidGate::TooManyPorts);
    }
    Ok(GatePlan {
        ports,
        host_ports: config.host_ports.clone(),
        agent_ports: Vec::new(),
        config: serde_json::to_vec(config)?,
    })
}

/// Adds the ports that other commands of the agent have published, if the gate publishes ports itself. `sessions`: folder with the directories of all sessions.
pub fn add_agent_ports(gate: &mut GatePlan, sessions: &Path, published: PublishedBy) {
    let config = serde_json::from_slice::<GateConfig>(&gate.config);
    let Some(config) = config.ok().filter(|config| config.publish) else {
        return;
    };
    let changed = serde_json::to_vec(&GateConfig {
        sessions: Some(sessions.to_owned()),
        agent_ports: published.clone(),
        ..config
    });
    // A gate without them is only less convenient.
    let Ok(changed) = changed else { return };
    let known = [&*gate.ports, &*gate.host_ports].concat();
    let room = MAX_AGENT_PORTS.min(MAX_PORTS.saturating_sub(known.len()));
    let new = published.into_keys().filter(|port| !known.contains(port));
    gate.agent_ports = new.take(room).collect();
    gate.config = changed;
}

/// Checks names that a call asks for.
pub fn check_names(names: &[String]) -> Result<(), PatternError> {
    Allowlist::parse(names).map(drop)
}

/// Adds names to the allowlist of a gate.
pub fn add_names(gate: &GatePlan, names: &[String]) -> Result<GatePlan, InvalidGate> {
    let mut config: GateConfig = serde_json::from_slice(&gate.config)?;
    config.allow.extend_from_slice(names);
    make(&config)
}

/// Names that a gate does not allow yet.
pub fn missing_names(gate: &GatePlan, names: &[String]) -> Result<Vec<String>, InvalidGate> {
    let config: GateConfig = serde_json::from_slice(&gate.config)?;
    let allow = Allowlist::parse(&config.allow)?;
    let mut missing = Vec::new();
    for name in names {
        if !allow.covers(&Pattern::parse(name)?) {
            missing.push(name.clone());
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_added_with_their_ports_and_proxies_are_kept() {
        let env = [
            ("https_proxy".into(), "http://proxy:3128".into()),
            ("PATH".into(), "/bin".into()),
        ];
        let config = GateConfig {
            allow: vec!["a.org".into()],
            ..bare(vec![8_080], &env)
        };
        let gate = make(&config).unwrap();
        assert_eq!(gate.ports, [22, 80, 443]);
        let names = ["a.org".to_owned(), "b.org:8443".to_owned()];
        assert_eq!(missing_names(&gate, &names).unwrap(), ["b.org:8443"]);
        let more = add_names(&gate, &names[1..]).unwrap();
        assert_eq!(more.ports, [22, 80, 443, 8_443]);
        let back: GateConfig = serde_json::from_slice(&more.config).unwrap();
        assert_eq!(back.allow, ["a.org", "b.org:8443"]);
        assert_eq!(back.never_publish, [8_080]);
        assert_eq!(back.proxy_variables.len(), 1);
        let mut shared = more;
        let published = [443, 3_000].map(|port| (port, "session_a".to_owned()));
        add_agent_ports(&mut shared, Path::new("/sessions"), published.into());
        assert_eq!(
            shared.agent_ports,
            [3_000],
            "the gate listens at 443 itself"
        );
        let back: GateConfig = serde_json::from_slice(&shared.config).unwrap();
        assert_eq!(back.agent_ports.len(), 2);
        assert!(check_names(&["*".to_owned()]).is_err());
    }
}
