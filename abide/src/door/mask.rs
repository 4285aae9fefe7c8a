pub struct Mask;
impl Mask { pub fn new<'a>(_: impl IntoIterator<Item=(std::borrow::Cow<'a,str>, std::borrow::Cow<'a,str>)>) -> Self { Mask } pub fn apply(&self, t: String) -> String { t } }
