//! `abide open`: logs a browser in and opens the page.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use abide_api::Link;
use serde_json::json;

use super::args::OpenArgs;
use super::client::Client;
use super::error::CliError;
use super::show;
use super::show::{errln, outln};

/// Program that opens a link on a desktop.
const OPENER: &str = "xdg-open";

pub async fn open(client: Client, args: OpenArgs) -> Result<u8, CliError> {
    let offer: Link = client.post_retrying("/v1/logins", &json!({})).await?;
    let link = &offer.url;
    let opened = !args.print && !args.json.json && has_a_display() && start_browser(link);
    if args.json.json {
        show::json(&offer);
        return Ok(0);
    }
    outln!("{link}");
    if !args.print {
        let seconds = offer.expires_in;
        let faint = show::FAINT;
        let what = match opened {
            true => "Opened in your browser",
            false => "Open it in a browser on this machine",
        };
        errln!("{faint}{what}. The link works once, within {seconds} seconds.{faint:#}");
    }
    Ok(0)
}

fn has_a_display() -> bool {
    ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Starts the browser and returns `true` on success. The browser outlives this program.
fn start_browser(link: &str) -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "a person's own browser, which is nobody's session"
    )]
    let mut opener = Command::new(OPENER);
    opener
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    opener.spawn().is_ok()
}
