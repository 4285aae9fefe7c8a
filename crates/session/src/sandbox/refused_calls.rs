//! System calls that the filter refuses and that are told: what they are called in the record, and what to do instead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::filter::gives_mode;
use super::notification::Notification;

/// Texts about calls, most of which are refused whatever their arguments. Programs attempt others without need, or have
/// another way; those fail silently.
const TOLD: &[(&[i64], &str)] = &[
    (
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
        ],
        "mount  file systems cannot be mounted or unmounted; work on the files where they are",
    ),
    (
        &[libc::SYS_chroot],
        "chroot  the root folder cannot be changed; run the program without it",
    ),
    (
        &[libc::SYS_clone, libc::SYS_unshare, libc::SYS_setns],
        "unshare  no container or other sandbox can be made in this one; switch the program's own one off, such as with \
         --no-sandbox",
    ),
    (
        &[
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_fanotify_init,
            libc::SYS_syslog,
        ],
        "kernel  the kernel's own events and messages cannot be seen; use what /proc shows of the own processes",
    ),
    (
        &[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key],
        "keyctl  the keys that the kernel holds cannot be used; use files",
    ),
    (
        &[
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_reboot,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
        ],
        "machine  clock, name, swap and modules of the machine cannot be changed; ask the person to do it",
    ),
];

/// Families of sockets by their number.
const FAMILIES: [(libc::c_int, &str); 8] = [
    (libc::AF_NETLINK, "AF_NETLINK"),
    (libc::AF_PACKET, "AF_PACKET"),
    (libc::AF_RDS, "AF_RDS"),
    (libc::AF_CAN, "AF_CAN"),
    (libc::AF_TIPC, "AF_TIPC"),
    (libc::AF_BLUETOOTH, "AF_BLUETOOTH"),
    (libc::AF_ALG, "AF_ALG"),
    (libc::AF_VSOCK, "AF_VSOCK"),
];

/// Text for the record about a call that the filter refuses. `None`: it is not told.
pub(super) fn told(seen: &Notification) -> Option<String> {
    let number = i64::from(seen.number);
    if number == libc::SYS_socket {
        return socket(seen);
    }
    if gives_mode(number) {
        let path = match number {
            libc::SYS_fchmod => seen.open_path(0),
            _ => seen.path(),
        };
        let path = path.unwrap_or_default();
        let path = path.display();
        return Some(format!(
            "chmod {path}  a file cannot get the set-user-ID or set-group-ID bit; leave the bit out"
        ));
    }
    let told = TOLD.iter().find(|(calls, _)| calls.contains(&number));
    told.map(|(_, text)| (*text).to_owned())
}

/// Text about a socket that cannot be made.
fn socket(seen: &Notification) -> Option<String> {
    let [family, kind, protocol, ..] = seen.args.map(|argument| argument as i32);
    let text = match family {
        libc::AF_INET | libc::AF_INET6 if kind & 0xf == libc::SOCK_RAW => {
            "socket SOCK_RAW  raw packets, as of ping, cannot be sent; test a host with a TCP connection, such as with curl"
        }
        // Without namespaces.
        libc::AF_INET | libc::AF_INET6 if protocol == 0 || protocol == libc::IPPROTO_TCP => {
            "socket AF_INET  the network is off"
        }
        // Servers attempt multipath TCP, and then take TCP. Without namespaces, C libraries look for name services at a Unix
        // socket, and then read the files.
        libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX => return None,
        _ => {
            let name = FAMILIES.iter().find(|(number, _)| *number == family);
            let name = name.map_or_else(|| format!("family {family}"), |(_, name)| (*name).into());
            return Some(format!(
                "socket {name}  this kind of socket cannot be made; use TCP or a Unix socket"
            ));
        }
    };
    Some(text.to_owned())
}

/// Text about a call that only root could make outside: the plan permits the path.
pub(super) fn of_root(seen: &Notification, path: &Path) -> Option<String> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    gives_away(seen, path).or_else(|| makes_device(seen, path))
}

/// Text about a call that would make a device.
fn makes_device(seen: &Notification, path: &Path) -> Option<String> {
    let (mode, device) = seen.new_node()?;
    let is_device = matches!(mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK);
    // The device 0 marks a removed file in an overlay, and can be made.
    (is_device && device != 0).then(|| {
        let path = path.display();
        format!("mknod {path}  a device cannot be made; use those of /dev")
    })
}

/// Text about a call that would give a file to another user or group.
fn gives_away(seen: &Notification, path: &Path) -> Option<String> {
    let (user, group) = seen.new_owner()?;
    let inside = path.strip_prefix("/").ok()?;
    let found = fs::symlink_metadata(Path::new(&format!("/proc/{}/root", seen.pid)).join(inside));
    let found = found.ok()?;
    let is_kept = |new: u32, old: u32| new == u32::MAX || new == old;
    let is_own = group == rustix::process::getgid().as_raw();
    (!is_kept(user, found.uid()) || !is_kept(group, found.gid()) && !is_own).then(|| {
        let path = path.display();
        format!(
            "chown {path}  a file cannot be given to another user or group; leave the owner out, such as with \
             tar --no-same-owner"
        )
    })
}
