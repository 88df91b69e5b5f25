// SPDX-License-Identifier: GPL-2.0

//! Checks of the kernel: can the module be built for it, and does it take modules?

use super::facts::{Config, Machine};
use super::ko::Ko;
use super::verdict::Verdict;
use crate::root::{LogLine, Read};
use crate::skipped;

const NO_RELEASE: &str = "the kernel's release is not known";
const NO_CONFIG: &str = "the kernel's configuration is not readable";
const CONFIG_PLACES: &str = "/boot/config-*, /lib/modules/*/build/.config, /proc/config.gz";

/// Runs a check on the kernel's configuration, if that can be read.
fn with_config(machine: &Machine, check: impl FnOnce(&Config) -> Verdict) -> Verdict {
    match machine.config() {
        Some(config) => check(config).from(&config.source),
        None => Verdict::skip(NO_CONFIG).from(CONFIG_PLACES),
    }
}

/// Runs a check on our installed file, if there is one.
fn with_our_file(machine: &Machine, check: impl FnOnce(&Ko) -> Verdict) -> Verdict {
    match machine.our_file() {
        Some((path, ko)) => check(&ko).from(path),
        None => {
            Verdict::skip("nvidia-peermem-rs is not installed for this kernel").from("/lib/modules")
        }
    }
}

/// Is the kernel built with Rust?
pub fn rust(machine: &Machine) -> Verdict {
    with_config(machine, |config| {
        match (config.has("RUST"), config.get("RUSTC_VERSION_TEXT")) {
            (true, Some(rustc)) => Verdict::ok(format!("CONFIG_RUST=y, built with {rustc}")),
            (true, None) => Verdict::ok("CONFIG_RUST=y"),
            (false, _) => Verdict::fail(
                "kernel built without CONFIG_RUST: the module cannot be built for it",
            )
            .hint(
                "boot a kernel that has it (Documentation/admin-guide.rst), use NVIDIA's own \
                 nvidia-peermem, or DMA-BUF, which needs no module",
            ),
        }
    })
}

/// Are the kernel's headers there?
pub fn headers(machine: &Machine) -> Verdict {
    let Some(release) = machine.release() else {
        return Verdict::skip(NO_RELEASE).from("/proc/sys/kernel/osrelease");
    };
    let place = format!("/lib/modules/{release}/build");
    match machine.headers() {
        Some(headers) => Verdict::ok(headers.clone()).from(headers),
        None if machine.our_file().is_some() => {
            Verdict::skip("not installed; only needed to build the module again").from(place)
        }
        None => Verdict::warn(format!("no kernel headers for {release}"))
            .hint(format!("install them (Debian, Ubuntu: linux-headers-{release}; Fedora: kernel-devel-{release})"))
            .from(place),
    }
}

/// Are the kernel's Rust crates there, of the very same compiler?
pub fn metadata(machine: &Machine) -> Verdict {
    let Some(headers) = machine.headers() else {
        return Verdict::skip("no kernel headers").from("/lib/modules");
    };
    if !machine.config().is_some_and(|config| config.has("RUST")) {
        return Verdict::skip("kernel built without CONFIG_RUST").from(headers);
    }
    let release = machine.release().unwrap_or_default();
    let mut places = vec![
        format!("{headers}/rust"),
        format!("/usr/src/linux-lib-rust-{release}/rust"),
    ];
    // What the package has made because the distribution ships none.
    const MADE: &str = "/var/cache/nvidia-peermem-rs/dkms";
    let made = machine.root.names(MADE).into_iter();
    places.extend(
        made.filter(|name| name.starts_with(&format!("{release}-")))
            .map(|name| format!("{MADE}/{name}/rust")),
    );
    let crates = ["core", "kernel", "bindings"];
    let complete = |place: &&String| {
        let file = |name| format!("{place}/lib{name}.rmeta");
        crates.iter().all(|name| machine.root.exists(&file(name)))
    };
    let Some(place) = places.iter().find(complete) else {
        return Verdict::warn("no Rust metadata: the module cannot be built here")
            .hint(format!(
                "install your distribution's (Ubuntu: linux-lib-rust-{release}), or make it: \
                 scripts/rust-metadata --help"
            ))
            .from(format!("{}/libcore.rmeta", places[0]));
    };
    let file = format!("{place}/libcore.rmeta");
    let wanted = machine.config().and_then(|c| c.get("RUSTC_VERSION_TEXT"));
    let found = machine.root.read_bytes(&file).contents();
    let found = found.as_deref().and_then(compiler_of);
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted != found => {
            Verdict::warn(format!("made with {found}, but the kernel with {wanted}"))
                .hint("install the metadata of this very kernel")
                .from(file)
        }
        (_, Some(found)) => Verdict::ok(format!("{place}, made with {found}")).from(file),
        (_, None) => Verdict::ok(place.to_owned()).from(file),
    }
}

/// The compiler's version that crate metadata begins with, after a byte with its length.
fn compiler_of(metadata: &[u8]) -> Option<String> {
    const HEAD: usize = 256;
    let head = &metadata[..metadata.len().min(HEAD)];
    let start = head.windows(6).position(|window| window == b"rustc ")?;
    let length = usize::from(*metadata.get(start.checked_sub(1)?)?);
    let text = metadata.get(start..start + length)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Is the compiler that is installed the one that built the kernel?
pub fn rustc(machine: &Machine) -> Verdict {
    const COMMAND: &str = "rustc --version";
    if machine.headers().is_none() {
        return Verdict::skip("no kernel headers").from(COMMAND);
    }
    let wanted = machine.config().and_then(|c| c.get("RUSTC_VERSION_TEXT"));
    let Some(wanted) = wanted.filter(|wanted| wanted.starts_with("rustc ")) else {
        return Verdict::skip("the kernel does not name its rustc").from(CONFIG_PLACES);
    };
    match rustc_version(machine) {
        Some(found) if found == wanted => Verdict::ok(found),
        Some(found) => Verdict::warn(format!(
            "{found}, but the kernel was built with {wanted}: the module cannot be built here"
        )),
        None => Verdict::warn(format!(
            "no rustc; the kernel was built with {wanted}: the module cannot be built here"
        )),
    }
    .hint(format!("install {wanted} and put it first in PATH"))
    .from(COMMAND)
}

/// What the compiler in `PATH` says; in a recorded tree, what is recorded of that.
fn rustc_version(machine: &Machine) -> Option<String> {
    if machine.root.is_recorded() {
        return machine.value("/commands/rustc --version");
    }
    let output = std::process::Command::new("rustc")
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| text.starts_with("rustc "))
}

/// Does the kernel notice modules that were built for others?
pub fn modversions(machine: &Machine) -> Verdict {
    with_config(machine, |config| match config.has("MODVERSIONS") {
        true => Verdict::ok("CONFIG_MODVERSIONS=y: symbol versions are checked"),
        false => Verdict::warn(
            "CONFIG_MODVERSIONS is off: a module built against another GPU driver or OFED is not \
             refused",
        )
        .hint("build the module again after each update of the GPU driver or of OFED"),
    })
}

/// May modules be loaded at all?
pub fn module_loading(machine: &Machine) -> Verdict {
    const SWITCH: &str = "/proc/sys/kernel/modules_disabled";
    match machine.value(SWITCH).as_deref() {
        Some("0") => Verdict::ok("allowed"),
        Some("1") if machine.is_ours_loaded() => {
            Verdict::warn("disabled since the module was loaded: it cannot be loaded again")
                .hint("reboot to load another build")
        }
        Some("1") => Verdict::fail("module loading is disabled until the next boot").hint(
            "load nvidia-peermem at boot before kernel.modules_disabled=1 is set \
             (/etc/modules-load.d, /etc/sysctl.d)",
        ),
        _ => Verdict::skip("not readable"),
    }
    .from(SWITCH)
}

/// Does the kernel insist on signatures?
pub fn lockdown(machine: &Machine) -> Verdict {
    const FILE: &str = "/sys/kernel/security/lockdown";
    let modes = machine.root.read(FILE);
    let mode = match &modes {
        Read::Contents(text) => text.split(['[', ']']).nth(1).unwrap_or("none"),
        Read::Denied => "unknown (needs root)",
        _ => "none",
    };
    match reason_for_signatures(machine) {
        None => Verdict::ok(format!("unsigned modules are taken (lockdown: {mode})")),
        Some(reason) => {
            let ours = machine.our_file();
            let detail = format!("only signed modules are taken ({reason}; lockdown: {mode})");
            match ours {
                Some((path, ko)) if ko.signer.is_none() => Verdict::fail(format!("{detail}, and {path} is not signed"))
                    .hint("sign it with a key that is enrolled: /lib/modules/$(uname -r)/build/scripts/sign-file sha512 KEY CERTIFICATE FILE")
                    .hint("enrol the key of DKMS: mokutil --import /var/lib/dkms/mok.pub, then reboot"),
                _ => Verdict::ok(detail),
            }
        }
    }
    .from(FILE)
}

/// Why unsigned modules would be refused.
fn reason_for_signatures(machine: &Machine) -> Option<&'static str> {
    let lockdown = machine.text("/sys/kernel/security/lockdown");
    if lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]") {
        return Some("kernel lockdown");
    }
    let enforced = machine.value("/sys/module/module/parameters/sig_enforce");
    if enforced.as_deref() == Some("Y") {
        return Some("module.sig_enforce=1");
    }
    let forced = machine
        .config()
        .is_some_and(|config| config.has("MODULE_SIG_FORCE"));
    forced.then_some("CONFIG_MODULE_SIG_FORCE=y")
}

/// Is our file signed, and does the kernel know the key?
pub fn signature(machine: &Machine) -> Verdict {
    with_our_file(machine, |ko| {
        let Some(signer) = &ko.signer else {
            return match reason_for_signatures(machine) {
                None => Verdict::ok("not signed, and need not be"),
                Some(_) => Verdict::skip("not signed: see check K7"),
            };
        };
        let keys = match machine.root.read("/proc/keys") {
            Read::Contents(keys) if keys.contains("asymmetri") => keys,
            _ => {
                return Verdict::ok(format!(
                    "signed by \"{signer}\"; whether that key is enrolled needs root"
                ))
            }
        };
        match keys.contains(signer.as_str()) {
            true => Verdict::ok(format!("signed by \"{signer}\", which the kernel knows")),
            false if reason_for_signatures(machine).is_none() => Verdict::ok(format!(
                "signed by \"{signer}\", unknown to the kernel, which does not insist"
            )),
            false => Verdict::fail(format!(
                "signed by \"{signer}\", which is not enrolled: the kernel refuses the module"
            ))
            .hint("mokutil --import CERTIFICATE (DKMS: /var/lib/dkms/mok.pub), then reboot"),
        }
    })
}

/// Was our file built for this kernel?
pub fn built_for(machine: &Machine) -> Verdict {
    let Some(release) = machine.release() else {
        return Verdict::skip(NO_RELEASE).from("/proc/sys/kernel/osrelease");
    };
    with_our_file(machine, |ko| match ko.info("vermagic") {
        Some(magic) if magic.split(' ').next() == Some(&release) => Verdict::ok(magic.trim()),
        Some(magic) => Verdict::fail(format!("built for {}, running is {release}", magic.trim()))
            .hint(format!("make KDIR=/lib/modules/{release}/build")),
        None => Verdict::fail("says not what kernel it is for").hint("build it again"),
    })
}

/// What the kernel log says about the last attempt to load the module.
pub fn load_error(machine: &Machine) -> Verdict {
    const LOG: &str = "/dev/kmsg";
    let log = match machine.root.kernel_log() {
        Read::Contents(log) => log,
        Read::Denied => return Verdict::skip("needs root").from(LOG),
        _ => return Verdict::skip("the kernel log is not readable").from(LOG),
    };
    match last_attempt(&log) {
        None => Verdict::ok("no error in the kernel log"),
        Some(Attempt::Good(line)) => Verdict::ok(format!("\"{}\"", line.text)),
        Some(Attempt::Refused(line, hint)) => {
            let detail = format!("\"{}\" ({:.0} s after boot)", line.text, line.seconds);
            match machine.is_ours_loaded() {
                true => Verdict::warn(format!("loaded, but the log has {detail}")),
                false => Verdict::fail(detail),
            }
            .hint(hint)
        }
    }
    .from(LOG)
}

/// What did DKMS do for this kernel when it was last asked?
pub fn dkms(machine: &Machine) -> Verdict {
    let release = machine.release().unwrap_or_default();
    let file = skipped::file(&release);
    match skipped::reason(machine.root) {
        Some(reason) if machine.our_file().is_some() => {
            Verdict::warn(format!("installed, but cannot be built again: {reason}"))
        }
        Some(reason) => Verdict::fail(format!("skipped this kernel: {reason}")),
        None if machine.root.exists(&file) => Verdict::ok("built for this kernel"),
        None => Verdict::skip("DKMS was not asked about this kernel"),
    }
    .hint(format!(
        "when that is mended: dkms autoinstall -k {release}"
    ))
    .from(file)
}

/// How the last attempt to load the module ended.
enum Attempt<'a> {
    Good(&'a LogLine),
    Refused(&'a LogLine, &'static str),
}

/// An attempt may leave several lines: the one that says most is the one that counts.
fn last_attempt(log: &[LogLine]) -> Option<Attempt<'_>> {
    const TOGETHER: f64 = 1.0;
    let mut lines = Vec::new();
    for line in log {
        if is_good(&line.text) {
            lines.clear();
            lines.push((line, None));
        } else if let Some(rank) = rank(&line.text) {
            lines.push((line, Some(rank)));
        }
    }
    let (last, how) = *lines.last()?;
    if how.is_none() {
        return Some(Attempt::Good(last));
    }
    let ranked = lines
        .into_iter()
        .filter_map(|(line, rank)| Some((rank?, line)));
    let (rank, line) = ranked
        .filter(|(_, line)| line.seconds + TOGETHER >= last.seconds)
        .min_by_key(|(rank, _)| *rank)?;
    Some(Attempt::Refused(line, REFUSALS[rank].1))
}

fn is_good(line: &str) -> bool {
    line.starts_with("nvidia_peermem: ") && line.contains("(Rust): ")
}

/// The place in `REFUSALS` of what a line says. Those about signatures do not name the module.
fn rank(line: &str) -> Option<usize> {
    let is_about_signatures = line.starts_with("Loading of ")
        || line.starts_with("module: Loading of ")
        || line.starts_with("Lockdown: ");
    if !line.starts_with("nvidia_peermem: ") && !is_about_signatures {
        return None;
    }
    REFUSALS.iter().position(|(text, _)| line.contains(text))
}

/// The core has a client of our name.
const REFUSED_CLIENT: &str = "refused the client";

/// Whether the module did not load because of another client. Without the right to read the log,
/// nobody knows.
pub fn is_client_refused(machine: &Machine) -> bool {
    let Read::Contents(log) = machine.root.kernel_log() else {
        return false;
    };
    matches!(last_attempt(&log), Some(Attempt::Refused(line, _)) if line.text.contains(REFUSED_CLIENT))
}

/// What the kernel says when it refuses a module, and what to do; what explains most comes first.
const REFUSALS: &[(&str, &str)] = &[
    (
        "uses symbols from proprietary module",
        "install NVIDIA's open GPU kernel modules (check G2)",
    ),
    (
        "inheriting taint",
        "install NVIDIA's open GPU kernel modules (check G2)",
    ),
    (
        "disagrees about version of symbol",
        "build the module again against what is installed now (checks M7, M8)",
    ),
    (
        "no symbol version for",
        "build the module again with the Module.symvers of all providers (check M7)",
    ),
    (
        "no GPU driver symbols",
        "modprobe nvidia; modinfo -F license nvidia must say Dual MIT/GPL (checks G1, G2)",
    ),
    ("no persistent pins", "update the GPU driver (check G3)"),
    (
        "no peer-memory API",
        "modinfo -n ib_core must be DOCA-OFED's, or use DMA-BUF (checks M1, D1)",
    ),
    (REFUSED_CLIENT, "unload the other client (check M4)"),
    (
        "is not supported, only",
        "correct the option in /etc/modprobe.d (check M10)",
    ),
    (
        "invalid for parameter",
        "parameters are numbers: correct the option in /etc/modprobe.d (check M10)",
    ),
    ("not loaded: ", "see Documentation/troubleshooting.rst"),
    (
        "version magic",
        "build the module for this kernel (check K9)",
    ),
    (
        "is rejected",
        "sign the module with a key that is enrolled (checks K7, K8)",
    ),
    (
        "unsigned module loading is restricted",
        "sign the module with a key that is enrolled (checks K7, K8)",
    ),
    (
        "Unknown symbol",
        "built for another kernel, rustc or provider: build it again (checks K3, M6)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_found_in_metadata() {
        let debian = b"rust\0\0\0\x09\0\0\0\0\0\x01\x02#rustc 1.85.1 (4eb161250 2025-03-15)\x01";
        assert_eq!(
            compiler_of(debian).as_deref(),
            Some("rustc 1.85.1 (4eb161250 2025-03-15)")
        );
        assert_eq!(compiler_of(b"rust"), None);
    }
}
