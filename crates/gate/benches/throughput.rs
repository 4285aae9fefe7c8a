//! Throughput of a connection through the gate beside a direct one: `cargo bench -p abide-gate`.
//!
//! The same client program sends to, and receives from, the same server, in turns outside and inside a sandbox. The
//! ratio is what counts; the goal is 70 %.

#[path = "../tests/gate/sandbox.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod sandbox;
#[path = "../tests/gate/world.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod world;

use std::io::{Read, Write};
use std::net::SocketAddr;

use abide_gate::process::Config;
use sandbox::{Sandbox, User, python};
use world::{PUBLIC, World, server};

const MEBIBYTES: usize = 512;
const ROUNDS: usize = 11;
const MEBIBYTE: usize = 1 << 20;

/// A server that reads a byte: `d` has it send, `u` has it receive.
fn source_and_sink() -> SocketAddr {
    server(|mut stream| {
        let mut buffer = vec![0; MEBIBYTE];
        stream.read_exact(&mut buffer[..1])?;
        if buffer[0] == b'd' {
            for _ in 0..MEBIBYTES {
                stream.write_all(&buffer)?;
            }
            return Ok(());
        }
        for _ in 0..MEBIBYTES {
            stream.read_exact(&mut buffer)?;
        }
        stream.write_all(b"k")
    })
}

/// A client that prints mebibytes a second in each direction.
fn client(name: &str, port: u16) -> String {
    format!(
        r#"
count, size = {MEBIBYTES}, 1 << 20
buffer = bytearray(size)
def download():
    with connect("{name}", {port}) as s:
        s.sendall(b"d")
        while s.recv_into(buffer): pass
def upload():
    with connect("{name}", {port}) as s:
        s.sendall(b"u")
        for _ in range(count): s.sendall(buffer)
        s.recv(1)
for act in [download, upload]:
    start = time.perf_counter()
    act()
    say(count / (time.perf_counter() - start))
"#
    )
}

fn numbers(text: &str) -> [f64; 2] {
    let numbers: Vec<f64> = text
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("two numbers")
}

/// Runs a program without a sandbox, and returns what it printed.
fn run_outside(program: &str) -> String {
    let output = python(program).output().expect("a program");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Runs the client in a sandbox.
fn run_inside(server: SocketAddr, copy_only: bool) -> String {
    let config = Config {
        allow: vec!["server.test".to_owned()],
        copy_only,
        ..Config::default()
    };
    let world = World::default()
        .name("server.test", PUBLIC)
        .server(80, server);
    let sandbox = Sandbox::start(User::Own, config, world, &client("server.test", 80));
    sandbox.finish().text
}

fn main() {
    let server = source_and_sink();
    let (mut direct, mut gate, mut copying) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(numbers(&run_outside(&client("127.0.0.1", server.port()))));
        gate.push(numbers(&run_inside(server, false)));
        copying.push(numbers(&run_inside(server, true)));
    }
    println!("MiB/s and ratio to direct, medians of {ROUNDS} rounds");
    for (index, direction) in ["download", "upload"].into_iter().enumerate() {
        let of = |runs: &[[f64; 2]]| median(runs.iter().map(|run| run[index]).collect());
        let ratio = |runs: &[[f64; 2]]| {
            let ratios = runs.iter().zip(&direct);
            median(
                ratios
                    .map(|(run, direct)| run[index] / direct[index])
                    .collect(),
            )
        };
        println!(
            "{direction:8}  direct {:5.0}  gate {:5.0} ({:.2})  gate without splice {:5.0} ({:.2})",
            of(&direct),
            of(&gate),
            ratio(&gate),
            of(&copying),
            ratio(&copying),
        );
    }
}
