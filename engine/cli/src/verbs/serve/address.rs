//! Where the server listens, and whether it may.

use anyhow::{Context, Result};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use strata_config::ConfigError;
use strata_config::Server;
use tokio::net::TcpListener;

/// An address to listen on.
pub(super) struct Address {
    ip: IpAddr,
    port: u16,
}

impl Address {
    /// The one that settings name.
    ///
    /// # Errors
    /// It is none, or other machines could reach it and no key is asked for.
    pub(super) fn of(server: &Server) -> Result<Address> {
        let word = server.host.trim();
        let ip = match word {
            "localhost" => IpAddr::from([127, 0, 0, 1]),
            _ => word.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
                ConfigError::value("--host", word, "an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0")
            })?,
        };
        if server.api_keys.iter().any(|key| !key.bytes().all(|b| b.is_ascii_graphic() || b == b' ')) {
            let expected = "visible ASCII characters, which are all that a header can bring";
            return Err(ConfigError::value("--api-key", "(not shown)", expected).into());
        }
        if !ip.is_loopback() && server.api_keys.is_empty() && !server.insecure {
            let expected = "127.0.0.1, since no key is asked for: --api-key asks for one, --insecure lets anybody in";
            return Err(ConfigError::value("--host", word, expected).into());
        }
        Ok(Address { ip, port: server.port })
    }

    /// Listens.
    ///
    /// # Errors
    /// The system does not let it, most often because another program listens there.
    pub(super) async fn listen(&self) -> Result<TcpListener> {
        let address = SocketAddr::new(self.ip, self.port);
        let busy = || format!("cannot listen on {address}; --port names another port, and 0 any that is free");
        TcpListener::bind(address).await.with_context(busy)
    }

    /// Whether other machines can reach it.
    pub(super) fn is_beyond(&self) -> bool {
        !self.ip.is_loopback()
    }

    /// Where it is found on this machine.
    ///
    /// # Errors
    /// The system does not say where it listens.
    pub(super) fn url(listener: &TcpListener) -> Result<String> {
        let at = listener.local_addr().context("cannot find the address that is listened on")?;
        // Whoever listens everywhere is found at home too.
        let shown = match at.ip() {
            ip if ip.is_unspecified() && ip.is_ipv6() => SocketAddr::new([0, 0, 0, 0, 0, 0, 0, 1].into(), at.port()),
            ip if ip.is_unspecified() => SocketAddr::new([127, 0, 0, 1].into(), at.port()),
            _ => at,
        };
        Ok(format!("http://{shown}"))
    }

    /// What there is to find, and where.
    ///
    /// # Errors
    /// The system does not say where it listens.
    pub(super) fn greeting(&self, listener: &TcpListener, name: &str, server: &Server) -> Result<String> {
        let url = Address::url(listener)?;
        let mut text = String::new();
        let reach = if self.is_beyond() { "for every machine that reaches it" } else { "for this machine alone" };
        let keys = if server.api_keys.is_empty() { "no key is asked for" } else { "with a key" };
        let _ = writeln!(text, "{name} at {url} ({reach}, {keys})");
        let _ = writeln!(text, "  chat and monitor   {url}/");
        let _ = writeln!(text, "  OpenAI clients     {url}/v1");
        let _ = writeln!(text, "  Anthropic clients  {url}");
        if server.mcp != "off" {
            let _ = writeln!(text, "  MCP clients        {url}/mcp");
        }
        Ok(text)
    }
}
