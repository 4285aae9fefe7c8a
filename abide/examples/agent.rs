//! An agent that needs no MCP: it holds abide within itself, starts a server, waits for it in one call,
//! and leaves a timer behind that will wake it.
//!
//! `cargo run -p abide --example agent`

use std::time::Duration;

use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // This program is also the program of its keepers.
    abide::run_child_role_if_requested();

    let folder = std::env::temp_dir().join("abide-example");
    let engine = abide::EmbeddedEngine::start(&folder, "/proc/self/exe").await?;
    let abide = engine.abide().of_agent("example");

    let server = abide
        .start("sleep 1; echo listening; cat")
        .with("pty", false)
        .await?;
    let server = abide.session(server.session_id().expect("a session"));
    let ready = abide
        .wait("the server starts", Duration::from_secs(30))
        .with(
            "until",
            json!({"session": server.id(), "output": "listening"}),
        )
        .await?;
    println!("{}\n", ready.text);

    let tests = abide.shell("echo all 3 tests passed").await?;
    println!("{}\n", tests.text);

    let mission = abide
        .mission("look at the deployment", Duration::from_millis(300))
        .await?;
    println!("{}\n", mission.text);
    let woken = abide.read_messages().with("timeout_seconds", 10).await?;
    println!("{}", woken.text);

    server.kill().await?;
    engine.stop().await
}
