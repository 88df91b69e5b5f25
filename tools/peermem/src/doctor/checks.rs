// SPDX-License-Identifier: GPL-2.0

//! All checks, in the order in which they are shown.

use super::facts::Machine;
use super::verdict::Verdict;
use super::{advice, gpu, kernel, module, pcie, rdma, user};

/// A check.
pub struct Check {
    /// Its identifier, which does not change.
    pub id: &'static str,
    /// A name that is easier to remember.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Does it. It reads, and changes nothing.
    pub run: fn(&Machine) -> Verdict,
}

const fn check(
    id: &'static str,
    name: &'static str,
    title: &'static str,
    run: fn(&Machine) -> Verdict,
) -> Check {
    Check {
        id,
        name,
        title,
        run,
    }
}

/// The checks.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    check("K1", "rust", "kernel built with Rust", kernel::rust),
    check("K2", "headers", "kernel headers", kernel::headers),
    check("K3", "metadata", "Rust metadata of the kernel", kernel::metadata),
    check("K4", "rustc", "compiler of the kernel", kernel::rustc),
    check("K5", "modversions", "versions of kernel symbols", kernel::modversions),
    check("K6", "module-loading", "loading of modules", kernel::module_loading),
    check("K7", "lockdown", "signatures required", kernel::lockdown),
    check("K8", "signature", "signature of the module", kernel::signature),
    check("K9", "built-for", "kernel the module is for", kernel::built_for),
    check("K10", "load-error", "last error at load", kernel::load_error),
    check("K11", "dkms", "built by DKMS", kernel::dkms),
    check("M1", "peer-api", "peer-memory API", module::peer_api),
    check("M2", "loaded", "module loaded", module::loaded),
    check("M3", "installed", "module installed", module::installed),
    check("M4", "conflicts", "other clients", module::conflicts),
    check("M5", "duplicates", "files of the same name", module::duplicates),
    check("M6", "symbols", "symbols the module needs", module::symbols),
    check("M7", "symbol-versions", "versions of these symbols", module::symbol_versions),
    check("M8", "running-providers", "drivers run as installed", module::running_providers),
    check("M9", "running-module", "module runs as installed", module::running_module),
    check("M10", "options", "options of modprobe", module::options),
    check("M11", "boot", "loaded at boot", module::at_boot),
    check("M12", "detection", "seen by applications", module::detection),
    check("M13", "version", "version of tool and module", module::tool_version),
    check("G1", "gpu-driver", "GPU driver", gpu::driver),
    check("G2", "flavour", "flavour of the GPU driver", gpu::flavour),
    check("G3", "persistent-pins", "GPU driver new enough", gpu::persistent_pins),
    check("G4", "libcuda", "GPU driver and libraries", gpu::libraries),
    check("G5", "driver-file", "GPU driver runs as installed", gpu::driver_file),
    check("G6", "gpus", "GPUs", gpu::gpus),
    check("G7", "bar1", "size of BAR1", gpu::bar1),
    check("G8", "bar1-use", "use of BAR1", gpu::bar1_use),
    check("G9", "product", "GPUs with GPUDirect RDMA", gpu::product),
    check("G10", "gpu-options", "options of the GPU driver", gpu::parameters),
    check("G11", "partitions", "confidential VM, MIG", gpu::partitions),
    check("G12", "coherent", "coherent GPUs", gpu::coherent),
    check("G13", "cuda", "CUDA's device files", gpu::cuda),
    check("N1", "devices", "RDMA devices", rdma::devices),
    check("N2", "hardware", "software RDMA devices", rdma::hardware),
    check("N3", "ports", "ports", rdma::ports),
    check("N4", "firmware", "firmware of the cards", rdma::firmware),
    check("N5", "stack", "origin of the RDMA stack", rdma::stack),
    check("N6", "verbs", "RDMA from user space", rdma::verbs),
    check("N7", "reach", "cards reach BAR1", rdma::reach),
    check("P1", "distance", "distance of GPU and card", pcie::distance),
    check("P2", "acs", "ACS redirection", pcie::acs),
    check("P3", "iommu", "IOMMU", pcie::iommu),
    check("P4", "links", "PCIe links", pcie::links),
    check("P5", "read-request", "size of read requests", pcie::read_request),
    check("P6", "relaxed-ordering", "relaxed ordering", pcie::relaxed_ordering),
    check("P7", "pcie-errors", "PCIe errors", pcie::errors),
    check("U1", "memlock", "limit on locked memory", user::memlock),
    check("U2", "device-files", "permission to use RDMA", user::device_files),
    check("U3", "container", "container", user::container),
    check("U4", "environment", "environment variables", user::environment),
    check("U5", "cgroup", "limits of the control group", user::control_group),
    check("U6", "mappings", "limit on mappings", user::mappings),
    check("D1", "dma-buf", "DMA-BUF instead", rdma::dma_buf),
    check("S1", "client", "client registered", advice::client),
    check("S2", "state", "takes registrations", advice::state),
    check("S3", "limit", "limit on pinned memory", advice::limit),
    check("S4", "failures", "failed registrations", advice::failures),
    check("S5", "leaks", "memory given back", advice::leaks),
    check("S6", "contract", "calls by the RDMA core", advice::contract),
    check("S7", "invalidations", "memory freed in use", advice::invalidations),
    check("S8", "mode", "mode of the module", advice::mode),
];
