pub struct Daemon {
    pub started_at: abide_core::Wall,
    pub places: crate::config::Places,
}
pub async fn serve(_: tokio::net::UnixListener, _: crate::daemon::Handle, _: Daemon) {}
pub fn ask_version(_: &std::path::Path) -> std::io::Result<String> {
    Ok(String::new())
}
pub fn ask_to_stop(_: &std::path::Path) -> std::io::Result<()> {
    Ok(())
}
