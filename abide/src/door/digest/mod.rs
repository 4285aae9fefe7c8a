pub struct Digest;
pub struct Limits;
#[derive(Default, Clone)]
pub struct Digested {
    pub text: String,
    pub lines_left_out: u64,
    pub bytes_left_out: u64,
    pub shortened: bool,
}
impl Limits {
    pub fn new(_: usize, _: bool, _: &str) -> Self {
        Limits
    }
}
impl Digest {
    pub fn new(_: Limits) -> Self {
        Digest
    }
    pub fn push(&mut self, _: &[u8]) {}
    pub fn gap(&mut self, _: u64) {}
    pub fn finish(self) -> Digested {
        Digested::default()
    }
}
pub fn one_line(t: &str) -> String {
    t.into()
}
