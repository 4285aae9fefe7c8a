fn main() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| arg == "keeper")
    {
        abide::keeper::main()
    }
}
