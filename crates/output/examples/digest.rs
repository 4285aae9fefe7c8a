//! Prints a digest of standard input: `make 2>&1 | cargo run --example digest -- [MAX_CHARS]`.

use std::io::Read;

use abide_output::digest::{DEFAULT_CHARS, Digest, Limits};
use abide_output::mask::Mask;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let max_chars = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => DEFAULT_CHARS,
    };
    let mut digest = Digest::new(&Limits {
        max_chars,
        ..Limits::default()
    });
    let mut input = std::io::stdin().lock();
    let mut buffer = [0; 64 << 10];
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            count => _ = digest.push(&buffer[..count]),
        }
    }
    let digested = digest.finish();
    println!("{}", Mask::default().apply(digested.text));
    eprintln!(
        "{} lines, {} bytes; {} lines left out",
        digested.lines_total, digested.bytes_total, digested.lines_left_out
    );
    Ok(())
}
