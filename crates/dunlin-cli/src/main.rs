//! The `dunlin` command.

fn main() -> std::process::ExitCode {
    dunlin_cli::run()
}
