//! The HTTP proxy that the environment of the host names. Pure.
//!
//! The sandbox never sees the variables; the gate dials through the proxy with `CONNECT`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use crate::allowlist::HostName;
use crate::questions::Target;

/// A proxy and what it is told about its user.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Name or address of the proxy.
    pub host: String,
    /// Port of the proxy.
    pub port: u16,
    /// Credentials for `Proxy-Authorization: Basic`.
    credentials: Option<String>,
}

impl Proxy {
    /// The request for a tunnel.
    pub fn request(&self, target: &Target) -> String {
        let authority = format!("{}:{}", target.name, target.port);
        let authorization = match &self.credentials {
            Some(credentials) => format!("Proxy-Authorization: Basic {credentials}\r\n"),
            None => String::new(),
        };
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n")
    }

    fn parse(url: &str) -> Result<Self, ProxyError> {
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(ProxyError::Scheme),
            None => url,
        };
        let rest = rest.split('/').next().unwrap_or_default();
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => {
                let decoded: Vec<u8> = percent_decode_str(credentials).collect();
                (Some(STANDARD.encode(decoded)), host)
            }
            None => (None, rest),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| ProxyError::Address)?)
            }
            _ => (host, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(ProxyError::Address);
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            credentials,
        })
    }
}

/// A proxy that cannot be used. Dialling directly instead would go round the rules of the host's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Another scheme than `http`.
    #[error("the proxy of this machine is not supported: its URL must begin with http://")]
    Scheme,
    /// No host, or a port that is not a number.
    #[error("the proxy of this machine has no valid address")]
    Address,
}

/// The proxies of the host.
#[derive(Clone, Default)]
pub struct Proxies {
    /// Proxy for port 80.
    http: Option<Proxy>,
    /// Proxy for all other ports.
    https: Option<Proxy>,
    /// Names that are dialled directly: `*`, or a name with everything below it.
    direct: Vec<String>,
}

impl Proxies {
    /// Proxies that environment variables name; `variable` returns the value of one.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let either = |name: &str| {
            let value = variable(&name.to_lowercase()).or_else(|| variable(name));
            value.filter(|value| !value.trim().is_empty())
        };
        let proxy = |name| {
            let url = either(name).or_else(|| either("ALL_PROXY"));
            url.map(|url| Proxy::parse(url.trim())).transpose()
        };
        let direct = either("NO_PROXY").unwrap_or_default();
        let direct = direct
            .split(',')
            .map(|name| name.trim().trim_start_matches("*.").trim_start_matches('.'));
        Ok(Self {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            direct: direct
                .filter(|name| !name.is_empty())
                .map(str::to_lowercase)
                .collect(),
        })
    }

    /// Proxies that the environment of this process names.
    pub fn from_environment() -> Result<Self, ProxyError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The proxy for a target, if it is not dialled directly.
    pub fn find(&self, target: &Target) -> Option<&Proxy> {
        let name = target.name.as_str();
        let is_direct = |direct: &String| {
            let before = name.strip_suffix(direct.as_str());
            direct == "*" || before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        if self.direct.iter().any(is_direct) {
            return None;
        }
        match target.port {
            80 => self.http.as_ref(),
            _ => self.https.as_ref(),
        }
    }

    /// True if connections to the name may go through a proxy, which then looks it up.
    pub fn may_serve(&self, name: &HostName) -> bool {
        [80, 443].into_iter().any(|port| {
            let name = name.clone();
            self.find(&Target { name, port }).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowlist::HostName;

    fn target(name: &str, port: u16) -> Target {
        let name = HostName::parse(name).expect("a host name");
        Target { name, port }
    }

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        let value = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Proxies::from_variables(value)
    }

    #[test]
    fn g127_variables_of_the_host_choose_the_proxy() {
        let proxies = proxies(&[
            ("HTTPS_PROXY", "http://me:p%40ss@proxy.corp:3128/"),
            ("http_proxy", "10.0.0.1:8080"),
            ("NO_PROXY", "localhost, .corp,example.net"),
        ]);
        let proxies = proxies.expect("proxies");
        let found = |name: &str, port| {
            proxies
                .find(&target(name, port))
                .map(|proxy| (proxy.host.as_str(), proxy.port))
        };
        assert_eq!(found("a.example", 443), Some(("proxy.corp", 3128)));
        assert_eq!(found("a.example", 22), Some(("proxy.corp", 3128)));
        assert_eq!(found("a.example", 80), Some(("10.0.0.1", 8080)));
        assert_eq!(found("git.corp", 443), None);
        assert_eq!(found("example.net", 443), None);
        assert_eq!(found("notexample.net", 443), Some(("proxy.corp", 3128)));
        let request = proxies
            .find(&target("a.example", 443))
            .expect("a proxy")
            .request(&target("a.example", 443));
        assert_eq!(
            request,
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
        );
    }

    #[test]
    fn g127_a_proxy_that_cannot_be_used_is_an_error() {
        for url in ["socks5://proxy:1080", "https://proxy:443"] {
            assert_eq!(
                proxies(&[("ALL_PROXY", url)]).err(),
                Some(ProxyError::Scheme)
            );
        }
        for url in ["http://", "http://proxy:port"] {
            assert_eq!(
                proxies(&[("HTTP_PROXY", url)]).err(),
                Some(ProxyError::Address)
            );
        }
        assert!(
            proxies(&[("HTTPS_PROXY", " ")])
                .expect("none")
                .https
                .is_none()
        );
    }
}
