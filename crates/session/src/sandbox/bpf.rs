//! Compiler of rules about system calls into a program for the kernel's filter.
//!
//! The kernel compiles a program whenever one is installed and runs it once for every system call number, so a command in a
//! sandbox waits for its length: calls are found by binary search, and one test looks for several bits or values.

use std::collections::BTreeMap;

pub type Program = Vec<libc::sock_filter>;

/// Rules by the number of the system call. The first one that holds decides; a call without any is allowed.
pub type Rules = BTreeMap<u32, Vec<Rule>>;

/// A value that the filter returns where all tests hold.
#[derive(Clone)]
pub struct Rule {
    pub tests: Vec<Test>,
    pub then: u32,
}

/// Test of an argument by its place. The kernel takes flags and numbers as 32 bits, so only those are compared.
#[derive(Clone)]
pub enum Test {
    AnyBit(u32, u32),
    /// The bits of a mask have a value.
    Bits(u32, u32, u32),
    OneOf(u32, Vec<u32>),
    NoneOf(u32, Vec<u32>),
}

/// `AUDIT_ARCH_…` of this architecture. `None`: there is no filter for it.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};
/// Offsets in `struct seccomp_data` of the kernel.
const NUMBER_FIELD: u32 = 0;
const ARCHITECTURE_FIELD: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
/// Numbers from here on are calls of x32 on x86-64: the same architecture with other numbers, which no rule names.
const X32: u32 = 0x4000_0000;
/// System calls that are compared one after the other.
const IN_SEQUENCE: usize = 4;

/// Compiles rules. A call of another architecture or of x32 ends the process. `None`: this architecture is not known.
pub fn compile(rules: &Rules) -> Option<Program> {
    let mut program = vec![
        load(ARCHITECTURE_FIELD),
        jump(libc::BPF_JEQ, ARCHITECTURE?, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_FIELD),
        jump(libc::BPF_JGE, X32, 0, 1),
        give(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let calls: Vec<_> = rules
        .iter()
        .map(|(call, rules)| (*call, decide(rules)))
        .collect();
    program.extend(search(&calls));
    Some(program)
}

/// Returns the program that allows every call.
pub fn allow_all() -> Program {
    vec![give(libc::SECCOMP_RET_ALLOW)]
}

/// Returns what rules decide about a system call, as their program does.
pub fn decided(rules: &Rules, call: u32, arguments: [u64; 6]) -> u32 {
    let argument = |place: &u32| arguments[*place as usize] as u32;
    let holds = |test: &Test| match test {
        Test::AnyBit(place, bits) => argument(place) & bits != 0,
        Test::Bits(place, mask, value) => argument(place) & mask == *value,
        Test::OneOf(place, values) => values.contains(&argument(place)),
        Test::NoneOf(place, values) => !values.contains(&argument(place)),
    };
    let mut rules = rules.get(&call).into_iter().flatten();
    let first = rules.find(|rule| rule.tests.iter().all(holds));
    first.map_or(libc::SECCOMP_RET_ALLOW, |rule| rule.then)
}

/// Finds the call whose number is loaded, by binary search.
fn search(calls: &[(u32, Program)]) -> Program {
    if calls.len() <= IN_SEQUENCE {
        let mut program = Program::new();
        for (call, decision) in calls {
            program.push(jump(libc::BPF_JEQ, *call, 0, decision.len()));
            program.extend(decision);
        }
        program.push(give(libc::SECCOMP_RET_ALLOW));
        return program;
    }
    let (below, others) = calls.split_at(calls.len() / 2);
    let below = search(below);
    let mut program = vec![
        jump(libc::BPF_JGE, others[0].0, 0, 1),
        line(libc::BPF_JMP | libc::BPF_JA, below.len() as u32, 0, 0),
    ];
    program.extend(below);
    program.extend(search(others));
    program
}

/// Decides about one call.
fn decide(rules: &[Rule]) -> Program {
    let mut program = Program::new();
    for rule in rules {
        let mut this = vec![give(rule.then)];
        for test in rule.tests.iter().rev() {
            let mut tested = compare(test, this.len());
            tested.append(&mut this);
            this = tested;
        }
        program.extend(this);
        if rule.tests.is_empty() {
            return program;
        }
    }
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}

/// Goes on with the next instruction if a test holds, and skips so many otherwise.
fn compare(test: &Test, skip: usize) -> Program {
    let argument = |place| load(FIRST_ARGUMENT + 8 * place);
    match test {
        Test::AnyBit(place, bits) => vec![argument(place), jump(libc::BPF_JSET, *bits, 0, skip)],
        Test::Bits(place, mask, value) => vec![
            argument(place),
            line(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, *mask, 0, 0),
            jump(libc::BPF_JEQ, *value, 0, skip),
        ],
        Test::OneOf(place, values) => {
            let mut program = vec![argument(place)];
            for (at, value) in values.iter().enumerate() {
                let left = values.len() - 1 - at;
                let otherwise = if left == 0 { skip } else { 0 };
                program.push(jump(libc::BPF_JEQ, *value, left, otherwise));
            }
            program
        }
        Test::NoneOf(place, values) => {
            let mut program = vec![argument(place)];
            for (at, value) in values.iter().enumerate() {
                let left = values.len() - 1 - at;
                program.push(jump(libc::BPF_JEQ, *value, left + skip, 0));
            }
            program
        }
    }
}

fn load(offset: u32) -> libc::sock_filter {
    line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(value: u32) -> libc::sock_filter {
    line(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

/// Skips so many instructions if the comparison holds, or so many others if not. What is skipped is part of one rule.
fn jump(comparison: u32, with: u32, then: usize, otherwise: usize) -> libc::sock_filter {
    let near = |skipped| u8::try_from(skipped).expect("the rules of a call are short");
    line(
        libc::BPF_JMP | libc::BPF_K | comparison,
        with,
        near(then),
        near(otherwise),
    )
}

fn line(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = code as u16;
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of a program for a system call, as the kernel would compute it.
    fn run(program: &Program, arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(call.to_ne_bytes());
        data.extend(arch.to_ne_bytes());
        data.extend(0_u64.to_ne_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let line = &program[at];
            at += 1;
            let jumped = |holds: bool| usize::from(if holds { line.jt } else { line.jf });
            let comparison = libc::BPF_JMP | libc::BPF_K;
            match u32::from(line.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let word = &data[line.k as usize..][..4];
                    a = u32::from_ne_bytes(word.try_into().unwrap());
                }
                code if code == libc::BPF_JMP | libc::BPF_JA => at += line.k as usize,
                code if code == comparison | libc::BPF_JEQ => at += jumped(a == line.k),
                code if code == comparison | libc::BPF_JGE => at += jumped(a >= line.k),
                code if code == comparison | libc::BPF_JSET => at += jumped(a & line.k != 0),
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => a &= line.k,
                code if code == libc::BPF_RET | libc::BPF_K => return line.k,
                code => panic!("an instruction that no filter has: {code:#x}"),
            }
        }
    }

    #[test]
    fn program_decides_as_its_rules() {
        let rule = |tests, then| Rule { tests, then };
        let mut rules = Rules::new();
        for call in (1..90).step_by(3) {
            rules.insert(call, vec![rule(vec![], call)]);
        }
        rules.insert(
            2,
            vec![
                rule(vec![Test::AnyBit(1, 6)], 100),
                rule(vec![Test::Bits(0, 3, 1)], 101),
            ],
        );
        rules.insert(
            50,
            vec![rule(
                vec![Test::OneOf(0, vec![1, 4]), Test::NoneOf(1, vec![2, 5, 7])],
                102,
            )],
        );
        rules.insert(
            51,
            vec![rule(vec![Test::NoneOf(0, vec![3])], 103), rule(vec![], 104)],
        );
        rules.insert(600, vec![rule(vec![Test::OneOf(1, vec![0])], 105)]);
        let program = compile(&rules).expect("this architecture is known");
        let arch = ARCHITECTURE.unwrap();
        for call in 0..700 {
            for first in 0..9 {
                for second in (0..9).chain([u64::MAX, 1 << 33]) {
                    let arguments = [first, second, 0, 0, 0, 0];
                    let found = run(&program, arch, call, arguments);
                    assert_eq!(
                        found,
                        decided(&rules, call, arguments),
                        "{call} {arguments:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn call_of_another_architecture_or_of_x32_ends_the_process() {
        let program = compile(&Rules::new()).expect("this architecture is known");
        let arch = ARCHITECTURE.unwrap();
        let killed = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), killed);
        assert_eq!(run(&program, arch, X32 + 1, [0; 6]), killed);
        assert_eq!(run(&program, arch, 1, [0; 6]), libc::SECCOMP_RET_ALLOW);
    }
}
