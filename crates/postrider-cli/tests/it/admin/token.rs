//! Tokens that anybody can guess: refused where other machines can call, warned about elsewhere.

use super::server::{OPERATE, Server};
use crate::support::{Outbox, Ran, command, finish, outboxes};

/// What somebody may put there for the time being.
const WEAK: [&str; 5] = ["x", "change-me", "fifteen-bytes-x", "CHANGE_ME_CHANGE_ME", "aaaaaaaaaaaaaaaaaaaaaaaa"];

fn start(outbox: &Outbox, args: &[&str], variable: &str, token: &str) -> Ran {
    let mut command = command(args);
    command.env("DATABASE_URL", &outbox.url).env(variable, token);
    finish(command, b"")
}

#[tokio::test]
async fn a_weak_token_is_refused_where_other_machines_can_call() {
    let [_, outbox] = outboxes().await;
    for token in WEAK {
        for (verb, variable) in [
            ("serve", "POSTRIDER_ADMIN_TOKEN"),
            ("run", "POSTRIDER_ADMIN_TOKEN"),
            ("receive", "POSTRIDER_RECEIVE_TOKEN"),
        ] {
            let ran = start(&outbox, &[verb, "--listen", "0.0.0.0:0"], variable, token);
            assert_eq!(ran.code, 2, "{verb} {token}: {}", ran.stderr);
            assert!(ran.stderr.contains("openssl rand -hex 32"), "{verb}: {}", ran.stderr);
            assert!(token.len() < 3 || !ran.stderr.contains(token), "{verb}: {}", ran.stderr);
        }
        let mut check = command(&["config", "check"]);
        check.env("DATABASE_URL", &outbox.url).env("POSTRIDER_ADMIN_TOKEN", token);
        check.env("POSTRIDER__ADMIN__LISTEN", "0.0.0.0:7433");
        assert_eq!(finish(check, b"").code, 2, "{token}");
    }
}

#[tokio::test]
async fn a_weak_token_is_warned_about_on_this_machine() {
    let [_, outbox] = outboxes().await;
    let serve = |token: &str| {
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0"]);
        serve.env("DATABASE_URL", &outbox.url).env("POSTRIDER_ADMIN_TOKEN", token);
        Server::spawn(serve, "").stop()
    };
    let said = serve("change-me");
    assert!(said.contains("openssl rand -hex 32") && !said.contains("change-me"), "{said}");
    let said = serve(OPERATE);
    assert!(!said.contains("openssl"), "{said}");
}
