#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub waiting_for_input: bool,
}
impl Facts {
    pub fn since(self, _: &Facts) -> Facts {
        self
    }
    pub fn describe(&self) -> String {
        String::new()
    }
}
pub fn of_session(_: &std::path::Path) -> Facts {
    Facts::default()
}
