// SPDX-License-Identifier: GPL-2.0

//! Why DKMS did not build the module: the package leaves that behind, for each kernel.

use crate::root::Root;

/// Where that is told about a kernel.
pub fn file(release: &str) -> String {
    format!("/var/lib/nvidia-peermem-rs/kernels/{release}")
}

/// Why the module was not built for the running kernel, if DKMS skipped that.
pub fn reason(root: &Root) -> Option<String> {
    let text = root.read(&file(&root.release()?)).contents()?;
    let value = |key| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
    };
    match value("result")? {
        "skipped" => value("reason").map(str::to_owned),
        _ => None,
    }
}
