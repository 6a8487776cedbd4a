//! What `run` and `serve` take about the admin API on the command line and from the environment. Secrets come from the
//! environment alone: an argument can be seen by everybody on the machine.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::admin::{AdminConfig, AdminToken, Listen, Role};
use crate::failure::{Failure, Result};

const DEFAULT_PORT: u16 = 7433;

#[derive(Debug, clap::Args)]
pub(crate) struct AdminOptions {
    /// Where the admin API and the page listen, or none; other machines
    /// only with a token [default: 127.0.0.1:7433]
    #[arg(long, env = "POSTRIDER__ADMIN__LISTEN", hide_env = true, value_name = "ADDRESS")]
    listen: Option<Listen>,
}

impl AdminOptions {
    pub(crate) fn config(&self) -> Result<AdminConfig> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
        let listen = self.listen.map_or(Some(default), |Listen(listen)| listen);
        let tokens = match std::env::var("POSTRIDER_ADMIN_TOKEN") {
            Ok(secret) if !secret.is_empty() => {
                vec![AdminToken { name: "admin".to_owned(), secret, role: Role::Operate }]
            }
            _ => Vec::new(),
        };
        let enabled = match std::env::var("INTERNAL_ADMIN_ENABLED").as_deref() {
            Ok("true") => Some(true),
            Ok("false") => Some(false),
            Ok(_) => return Err(Failure::usage("INTERNAL_ADMIN_ENABLED must be true or false")),
            Err(_) => None,
        };
        Ok(AdminConfig { listen, explicit: self.listen.is_some(), enabled, tokens, hosts: Vec::new() })
    }
}
