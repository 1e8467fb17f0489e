//! Which names and pages may use the server.
//!
//! A page of the web can have its own name resolve to this machine (DNS rebinding) and is then of the same origin as the
//! server. What gives it away is the name: it has to be one, and addresses and `localhost` cannot be made to mean another
//! machine. So the server answers to those, and to names that it was told.

use std::net::IpAddr;

/// Whether a `Host` header addresses this server.
pub(crate) fn host_allowed(host: &str, allowed: &[String]) -> bool {
    let name = name(host).to_ascii_lowercase();
    ((is_local(&name) || is_address(&name)) && has_fit_port(host))
        || allowed.iter().any(|a| a.eq_ignore_ascii_case(&name) || a.eq_ignore_ascii_case(host))
}

/// Whether a page of this `Origin` may use the server that was addressed as `host`.
pub(crate) fn origin_allowed(origin: &str, host: Option<&str>, allowed: &[String]) -> bool {
    let listed = allowed.iter().any(|a| a.trim_end_matches('/').eq_ignore_ascii_case(origin));
    let Some(authority) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else {
        return listed;
    };
    let name = name(authority).to_ascii_lowercase();
    let loopback = (is_local(&name) || literal(&name).is_some_and(|a| a.is_loopback())) && has_fit_port(authority);
    listed || loopback || host.is_some_and(|h| h.eq_ignore_ascii_case(authority))
}

/// A host without its port.
fn name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(host, |(address, _)| address);
    }
    host.split_once(':').map_or(host, |(name, _)| name)
}

/// Whether what stands behind the name is a port or nothing.
fn has_fit_port(authority: &str) -> bool {
    let behind = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    match behind.split_once(':') {
        Some((_, port)) => port.is_empty() || port.parse::<u16>().is_ok(),
        // Behind an address in brackets there can be nothing else.
        None => behind.is_empty() || behind.len() == authority.len(),
    }
}

fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

fn is_address(name: &str) -> bool {
    literal(name).is_some()
}

fn literal(name: &str) -> Option<IpAddr> {
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_this_machine() {
        for host in ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "192.168.1.5:80", "a.localhost"] {
            assert!(host_allowed(host, &[]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:8080@evil.example",
            "localhost:evil.example",
            "[::1].evil.example",
            "",
        ] {
            assert!(!host_allowed(host, &[]), "{host}");
        }
        assert!(host_allowed("box.lan:8080", &["box.lan".to_owned()]));
    }

    #[test]
    fn pages_of_elsewhere_are_strangers() {
        let allowed = ["https://chat.example".to_owned()];
        for origin in ["http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]", "https://chat.example"] {
            assert!(origin_allowed(origin, Some("127.0.0.1:8080"), &allowed), "{origin}");
        }
        assert!(origin_allowed("http://192.168.1.5:8080", Some("192.168.1.5:8080"), &[]), "its own page");
        for origin in [
            "https://evil.example",
            "null",
            "http://192.168.1.6:8080",
            "http://localhost.evil.example",
            "http://127.0.0.1:20601.evil.example",
            "http://[::1]:1.evil.example",
            "",
        ] {
            assert!(!origin_allowed(origin, Some("127.0.0.1:8080"), &allowed), "{origin}");
        }
    }
}
