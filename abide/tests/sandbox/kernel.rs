//! Attacks 81 to 94: interfaces of the kernel.

use crate::harness::as_each_user;

#[test]
fn dangerous_system_calls_fail() {
    as_each_user(|user| {
        let said = user.python(
            r#"
print("81", call(425, 425, 8, None))
print("82", call(323, 282, 0), call(298, 241, None, 0, -1, -1, 0), call(321, 280, 0, None, 0), call(246, 104, 0, 0, None, 0),
      call(175, 105, None, 0, b""), call(167, 224, b"/x", 0), call(169, 142, 0, 0, 0, None), call(163, 89, None))
print("83", call(250, 219, 0, 0), call(248, 217, b"user", b"x", b"x", 1, -3), call(249, 218, b"user", b"x", None, -3))
print("89", libc.prctl(38, 0, 0, 0, 0), attempt(lambda: os.setgroups([0])), attempt(lambda: os.setuid(1 if os.getuid() == 0 else 0)) != "ok")
print("91", call(227, 112, 0, None), call(164, 170, None, None))
print("92", call(300, 262, 0, 0))
print("88", call(317, 277, 1, 0, None), call(317, 277, 1, 8, None))
"#,
        );
        for line in [
            "81 ENOSYS",
            "82 EPERM EPERM EPERM EPERM EPERM EPERM EPERM EPERM",
            "83 EPERM EPERM EPERM",
            "89 -1 EPERM True",
            "91 EPERM EPERM",
            "92 EPERM",
            "88 EFAULT EBUSY",
        ] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
    });
}

#[test]
fn settings_of_the_kernel_cannot_be_written_as_root_either() {
    as_each_user(|user| {
        let scripts = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/poweroff_cmd",
            "/proc/sys/vm/drop_caches",
            "/proc/sysrq-trigger",
            "/sys/kernel/uevent_helper",
            "/proc/sys/fs/binfmt_misc/register",
        ]
        .map(|path| format!("cat {path} > /dev/null 2>&1; : > {path}"));
        let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
        let words = [
            "Read-only file system",
            "Permission denied",
            "No such file",
            "Operation not permitted",
        ];
        user.refused("84", &scripts, &words);
        if user.is_root() {
            let text = user.run(": > /proc/sys/kernel/core_pattern").text;
            assert!(text.contains("Read-only file system"), "84: {text}");
        }
        user.works("84", "cat /proc/sys/kernel/ostype");
    });
}

#[test]
fn programs_run_from_any_place_in_the_same_sandbox() {
    as_each_user(|user| {
        let script = "cp /bin/cat c && ./c /proc/self/status | grep -q 'CapEff:.0000000000000000' && \
                      (echo x > /etc/x) 2>&1 | grep -q Read-only && echo held";
        let said = user.works("86", script);
        assert!(said.starts_with("held\n"), "{said}");
        let ran = user.python(
            r#"
fd = os.memfd_create("x", 0)
os.write(fd, open("/bin/true", "rb").read())
child = os.fork()
if child == 0:
    os.execve(fd, ["x"], {})
print("86", os.waitpid(child, 0)[1])
"#,
        );
        assert!(ran.contains("86 0"), "{ran}");
    });
}

#[test]
fn only_ordinary_sockets_can_be_made() {
    as_each_user(|user| {
        let said = user.python(
            r#"
def made(family, kind, protocol=0):
    return attempt(lambda: socket.socket(family, kind, protocol))
print("90", *[made(f, socket.SOCK_DGRAM) for f in (40, 17, 38, 31, 44, 21, 30)], made(16, socket.SOCK_RAW, 9), made(16, socket.SOCK_RAW, 15),
      made(2, socket.SOCK_RAW, 1), made(2, socket.SOCK_STREAM, 262))
print("twin", made(1, 1), made(2, 1), made(10, 2), made(16, socket.SOCK_RAW, 0))
"#,
        );
        let refused = ["EPERM"; 11].join(" ");
        assert!(said.contains(&format!("90 {refused}\n")), "{said}");
        assert!(said.contains("twin ok ok ok ok"), "{said}");
    });
}

#[test]
fn network_is_absent_and_loopback_is_the_sandboxes_own() {
    as_each_user(|user| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let program = format!(
            r#"
print("off", attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 2)))
print("far", attempt(lambda: socket.create_connection(("192.0.2.1", 80), 2)))
server = socket.create_server(("127.0.0.1", 0))
print("own", attempt(lambda: socket.create_connection(server.getsockname(), 2)))
"#
        );
        let said = user.python(&program);
        for line in ["off ECONNREFUSED", "far ENETUNREACH", "own ok"] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        let options = ["--sandbox", "workspace-write", "--network", "on"];
        let ran = user.run_in(
            &options,
            &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"),
        );
        assert_eq!(ran.text, "connected\n");
    });
}

#[test]
fn folder_that_is_moved_away_leads_nowhere() {
    as_each_user(|user| {
        user.write("work/a/b/file", "");
        user.write("outside/secret", "kept\n");
        user.outside("mkfifo ready go");
        let script = "cd a/b; echo ready > ../../ready; read < $ROOT/work/go; echo x > ../secret; echo x > ../new; ls ..; cat ../../etc/hostname";
        let mut inside = user.spawn(script);
        user.outside("read < ready && mv a/b $ROOT/outside/b && echo go > go");
        let status = inside.wait().expect("an ending");
        assert!(!status.success(), "93");
        assert_eq!(user.read("outside/secret"), "kept\n", "93");
        assert!(!user.exists("outside/new"), "93");
    });
}

#[test]
fn files_that_run_as_their_owner_cannot_be_made() {
    as_each_user(|user| {
        let said = user.python(
            r#"
flags = os.O_CREAT | os.O_WRONLY
for name, mode in [("user", 0o4755), ("group", 0o2755)]:
    print(name, attempt(lambda: os.open(name, flags, mode)), attempt(lambda: os.mknod(name, mode)),
          attempt(lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, mode)))
print("openat2", call(437, 437, -100, b"x", ctypes.create_string_buffer(24), 24))
os.close(os.open("plain", flags, 0o755))
os.close(os.open("plain", os.O_RDONLY, 0o6755))
os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600))
"#,
        );
        for line in [
            "user EPERM EPERM EPERM",
            "group EPERM EPERM EPERM",
            "openat2 ENOSYS",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        assert!(!user.exists("work/user") && !user.exists("work/group"));
    });
}

#[test]
fn refused_system_calls_are_told_with_what_to_do_instead() {
    as_each_user(|user| {
        let said = user.python(
            r#"
open("plain", "w").close()
print("mount", *[call(165, 40, b"none", b"/mnt", b"tmpfs", 0, None) for _ in range(2)])
print("unshare", call(272, 97, 0x10000000))
print("chmod", attempt(lambda: os.chmod("plain", 0o4755)), attempt(lambda: os.fchmod(os.open("plain", os.O_RDONLY), 0o2755)))
print("socket", attempt(lambda: socket.socket(40, 1)), attempt(lambda: socket.socket(2, socket.SOCK_RAW, 1)))
print("quiet", attempt(lambda: socket.socket(2, 1, 262)), attempt(lambda: os.chmod("plain", 0o755)))
print("chown", attempt(lambda: os.chown("plain", 1, -1)), attempt(lambda: os.chown("plain", os.getuid(), -1)))
"#,
        );
        let plain = user.path("work/plain");
        let plain = plain.display();
        let is_root = user.is_root();
        // An ordinary user has no other user in its sandbox.
        let (count, chown) = if is_root { (8, "EPERM") } else { (7, "EINVAL") };
        for line in [
            "mount EPERM EPERM".to_owned(),
            "unshare EPERM".to_owned(),
            "chmod EPERM EPERM".to_owned(),
            "socket EPERM EPERM".to_owned(),
            "quiet EPERM ok".to_owned(),
            format!("chown {chown} ok"),
            format!("SANDBOX: {count} things were refused (workspace-write, network off)"),
            "  call   mount  file systems cannot be mounted or unmounted; work on the files where they are (2 times)".to_owned(),
            "  call   unshare  no container or other sandbox can be made in this one; switch the program's own one off, such \
             as with --no-sandbox"
                .to_owned(),
            format!(
                "  call   chmod {plain}  a file cannot get the set-user-ID or set-group-ID bit; leave the bit out (2 times)"
            ),
            "  call   socket AF_VSOCK  this kind of socket cannot be made; use TCP or a Unix socket".to_owned(),
            "  call   socket SOCK_RAW  raw packets, as of ping, cannot be sent; test a host with a TCP connection, such as with curl"
                .to_owned(),
            "A refused system call works outside the sandbox only.".to_owned(),
        ] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        assert_eq!(
            said.contains(&format!("  call   chown {plain}  ")),
            is_root,
            "{said}"
        );
    });
}

#[test]
fn calls_from_signal_handlers_and_restarted_calls_are_filtered() {
    as_each_user(|user| {
        let said = user.python(
            r#"
import signal
def mount(*_): print("mount", call(165, 40, b"none", b"/mnt", b"tmpfs", 0, None), flush=True)
signal.signal(signal.SIGUSR1, mount)
os.kill(os.getpid(), signal.SIGUSR1)
print("restart", call(219, 128), flush=True)
mount()
"#,
        );
        assert_eq!(said.matches("mount EPERM").count(), 2, "94: {said}");
        assert!(said.contains("restart EINTR"), "94: {said}");
    });
}
