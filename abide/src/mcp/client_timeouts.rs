//! Timeouts of clients for tool calls. An answer after the timeout is lost, so a call is answered shortly before.

use std::ffi::OsStr;

use abide_core::Millis;

use super::client_quirks::{ClientQuirks, ClientTimeout};
use super::origin::Transport;

/// `ABIDE_CALL_LIMIT`: the client's timeout for a tool call in seconds, if it differs from the usual one
/// (`0`: no timeout). Set it in the client's configuration of this server.
const OVERRIDE: &str = "ABIDE_CALL_LIMIT";
/// Limit on the margin. A call is answered before the timeout by a sixth of it, but by no more than this.
const MARGIN_LIMIT: Millis = Millis::from_secs(20);

/// Time for which a call of this client may wait. `None`: without limit. `progress`: the client receives
/// progress notifications for this call.
pub fn standby<'a>(
    client: &str,
    transport: &Transport,
    progress: bool,
    var: impl Fn(&str) -> Option<&'a OsStr>,
) -> Option<Millis> {
    let number = |name: &str| var(name)?.to_str()?.trim().parse::<f64>().ok();
    if let Some(secs) = number(OVERRIDE).filter(|secs| secs.is_finite() && *secs >= 0.0) {
        return (secs > 0.0).then(|| with_margin(Millis::from_secs_f64(secs)));
    }
    let quirks = ClientQuirks::of(client);
    let set = quirks.timeout_variable.and_then(number);
    if let Some(millis) = set.filter(|millis| *millis >= 1.0) {
        return Some(with_margin(Millis(millis as u64)));
    }
    let limit = match transport {
        Transport::Http => quirks.http_timeout,
        Transport::Front(_) => quirks.timeout,
    };
    match limit {
        ClientTimeout::SinceProgress(_) if progress => None,
        ClientTimeout::SinceProgress(secs) | ClientTimeout::Total(secs) => {
            Some(with_margin(Millis::from_secs(secs)))
        }
    }
}

fn with_margin(limit: Millis) -> Millis {
    let limit = limit.min(Millis::MAX);
    Millis(limit.0 - MARGIN_LIMIT.0.min(limit.0 / 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front() -> Transport {
        Transport::Front("f".into())
    }

    fn plain(client: &str, progress: bool) -> Option<u64> {
        standby(client, &front(), progress, |_| None).map(|standby| standby.0)
    }

    #[test]
    fn claude_code_over_http_has_a_shorter_timeout() {
        let quiet = |client| standby(client, &Transport::Http, false, |_| None);
        assert_eq!(quiet("claude-code"), Some(Millis(280_000)));
        assert_eq!(quiet("some-client"), Some(Millis(50_000)));
        assert_eq!(
            standby("claude-code", &Transport::Http, true, |_| None),
            None
        );
    }

    #[test]
    fn call_is_answered_before_the_timeout_of_its_client() {
        for (client, silent, with_progress) in [
            ("some-client", Some(50_000), Some(50_000)),
            ("", Some(50_000), Some(50_000)),
            ("codex-mcp-client", Some(280_000), Some(280_000)),
            ("claude-code", Some(1_780_000), None),
            ("gemini-cli-mcp-client-abide", Some(580_000), Some(580_000)),
            ("goose-desktop", Some(280_000), Some(280_000)),
            ("opencode", Some(50_000), None),
            (
                "Visual Studio Code - Insiders",
                Some(280_000),
                Some(280_000),
            ),
            ("Cline", Some(50_000), Some(50_000)),
        ] {
            assert_eq!(plain(client, false), silent, "{client}");
            assert_eq!(plain(client, true), with_progress, "{client} with progress");
        }
    }

    #[test]
    fn override_applies_to_every_client() {
        let variable =
            |value: &'static str| move |name: &str| (name == OVERRIDE).then_some(OsStr::new(value));
        assert_eq!(
            standby("claude-code", &front(), true, variable("3")),
            Some(Millis(2_500))
        );
        assert_eq!(
            standby("codex-mcp-client", &front(), false, variable("1200.5")),
            Some(Millis(1_180_500))
        );
        assert_eq!(standby("any", &front(), false, variable("0")), None);
        for nonsense in ["", "soon", "-1", "NaN", "inf"] {
            assert_eq!(
                standby("any", &front(), false, variable(nonsense)),
                Some(Millis(50_000)),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn claude_code_timeout_is_read_from_the_environment() {
        let variable = |name: &str| (name == "MCP_TOOL_TIMEOUT").then_some(OsStr::new("120000"));
        assert_eq!(
            standby("claude-code", &front(), true, variable),
            Some(Millis(100_000))
        );
        assert_eq!(
            standby("codex-mcp-client", &front(), true, variable),
            Some(Millis(280_000))
        );
    }
}
