//! The libraries and their symbols. Input: only the linker's search path. Output: tables of
//! function pointers, valid as long as the process lives.
//!
//! A symbol may have several versions in libibverbs (`ibv_open_device@IBVERBS_1.0` has other
//! structs than `@@IBVERBS_1.1`); `dlsym` returns the default one, which the headers describe.
//!
//! Invariants:
//! 1. The libraries are rdma-core's: they have its names, or are in the folder that the operator
//!    set in `RDMA_CORE_LIB_DIR`. So their initializers are harmless, and a symbol has the
//!    signature in the headers. If the program's file gives it privileges, its user may not be the
//!    operator, and the variable is ignored.
//! 2. A library that was opened is never closed: function pointers stay valid, including those that
//!    the library passed to others.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::bindings;
use crate::verbs::{Device, DeviceList, VerbsError};

/// The variable for a folder with libibverbs.so.1 and libmlx5.so.1, instead of the linker's search
/// path: for an rdma-core that was built by hand.
pub const FOLDER_VARIABLE: &str = "RDMA_CORE_LIB_DIR";

/// The folder that the operator has set. Code is loaded from there, so it is ignored if the program
/// has privileges that the user who set the variable may lack (getauxval(3), AT_SECURE): the linker
/// ignores `LD_LIBRARY_PATH` then, too.
fn folder() -> Option<PathBuf> {
    // SAFETY: a number from the vector that the kernel passed to the process; no address is passed.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    std::env::var_os(FOLDER_VARIABLE).filter(|_| !is_privileged).map(PathBuf::from)
}

/// Generates the table of a library: a function pointer per symbol, with its signature in the
/// headers.
macro_rules! symbols {
    ($(#[$attribute:meta])* $table:ident of $library:literal { $($symbol:ident: $signature:ident,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table { $(pub(crate) $symbol: bindings::$signature,)* }

        impl $table {
            /// Loads the library and looks up all symbols.
            ///
            /// # Errors
            /// The library is missing, or is too old to have all symbols.
            pub fn load() -> Result<Self, LoadError> {
                Self::load_from(folder().as_deref())
            }

            fn load_from(folder: Option<&Path>) -> Result<Self, LoadError> {
                let library = open($library, folder)?;
                Ok(Self { $($symbol: {
                    // SAFETY: the signature is the header's (1); the pointer stays valid (2).
                    let found = unsafe { library.get::<bindings::$signature>(stringify!($symbol)) };
                    *found.map_err(|_| LoadError::Symbol { library: $library, symbol: stringify!($symbol) })?
                },)* })
            }
        }
    };
}

symbols! {
    /// The exported functions of libibverbs.
    Verbs of "libibverbs.so.1" {
        ibv_get_device_list: ibv_get_device_list_fn,
        ibv_free_device_list: ibv_free_device_list_fn,
        ibv_get_device_guid: ibv_get_device_guid_fn,
        ibv_open_device: ibv_open_device_fn,
        ibv_close_device: ibv_close_device_fn,
        ibv_query_device: ibv_query_device_fn,
        ibv_query_port: ibv_query_port_fn,
        ibv_query_gid: ibv_query_gid_fn,
        ibv_get_async_event: ibv_get_async_event_fn,
        ibv_ack_async_event: ibv_ack_async_event_fn,
        ibv_alloc_pd: ibv_alloc_pd_fn,
        ibv_dealloc_pd: ibv_dealloc_pd_fn,
        ibv_reg_mr: ibv_reg_mr_fn,
        ibv_reg_mr_iova2: ibv_reg_mr_iova2_fn,
        ibv_dereg_mr: ibv_dereg_mr_fn,
        ibv_create_comp_channel: ibv_create_comp_channel_fn,
        ibv_destroy_comp_channel: ibv_destroy_comp_channel_fn,
        ibv_get_cq_event: ibv_get_cq_event_fn,
        ibv_ack_cq_events: ibv_ack_cq_events_fn,
        ibv_create_cq: ibv_create_cq_fn,
        ibv_destroy_cq: ibv_destroy_cq_fn,
        ibv_create_srq: ibv_create_srq_fn,
        ibv_modify_srq: ibv_modify_srq_fn,
        ibv_destroy_srq: ibv_destroy_srq_fn,
        ibv_create_ah: ibv_create_ah_fn,
        ibv_destroy_ah: ibv_destroy_ah_fn,
        ibv_attach_mcast: ibv_attach_mcast_fn,
        ibv_detach_mcast: ibv_detach_mcast_fn,
        ibv_create_qp: ibv_create_qp_fn,
        ibv_modify_qp: ibv_modify_qp_fn,
        ibv_query_qp: ibv_query_qp_fn,
        ibv_destroy_qp: ibv_destroy_qp_fn,
    }
}

symbols! {
    /// The exported functions of libmlx5: the direct verbs.
    Mlx5dv of "libmlx5.so.1" {
        mlx5dv_is_supported: mlx5dv_is_supported_fn,
        mlx5dv_query_device: mlx5dv_query_device_fn,
        mlx5dv_create_cq: mlx5dv_create_cq_fn,
        mlx5dv_create_qp: mlx5dv_create_qp_fn,
        mlx5dv_create_wq: mlx5dv_create_wq_fn,
        mlx5dv_init_obj: mlx5dv_init_obj_fn,
        mlx5dv_set_context_attr: mlx5dv_set_context_attr_fn,
        mlx5dv_get_clock_info: mlx5dv_get_clock_info_fn,
    }
}

/// Both libraries: the entry point. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RdmaCore(Arc<(Verbs, Mlx5dv)>);

impl RdmaCore {
    /// Loads both libraries.
    ///
    /// # Errors
    /// A library is missing, or is too old.
    pub fn load() -> Result<Self, LoadError> {
        Ok(Self::of(Verbs::load()?, Mlx5dv::load()?))
    }

    pub(crate) fn of(verbs: Verbs, mlx5: Mlx5dv) -> Self {
        Self(Arc::new((verbs, mlx5)))
    }

    /// The devices currently visible to this process. An empty list is no error: see
    /// [`DeviceList`].
    ///
    /// # Errors
    /// The kernel refused the query.
    pub fn devices(&self) -> Result<DeviceList, VerbsError> {
        Device::list(self)
    }

    pub(crate) fn verbs(&self) -> &Verbs {
        &self.0.0
    }

    pub(crate) fn mlx5(&self) -> &Mlx5dv {
        &self.0.1
    }
}

/// Why the libraries cannot be used. Its text is one sentence that ends with the command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The linker did not find the library, or could not load it.
    Library {
        /// Its file name.
        library: &'static str,
        /// The linker's message; it names the file.
        reason: String,
    },
    /// The library lacks a symbol that we need.
    Symbol {
        /// Its file name.
        library: &'static str,
        /// The first symbol that is missing.
        symbol: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { reason, .. } => {
                write!(f, "rdma-core is not installed: apt install rdma-core ibverbs-providers ({reason})")
            }
            Self::Symbol { library, symbol } => write!(
                f,
                "rdma-core is too old, {library} has no {symbol}: apt install --only-upgrade rdma-core libibverbs1 ibverbs-providers"
            ),
        }
    }
}

impl core::error::Error for LoadError {}

/// Opens a library permanently.
fn open(library: &'static str, folder: Option<&Path>) -> Result<&'static Library, LoadError> {
    let path = folder.map_or_else(|| library.into(), |folder| folder.join(library));
    // SAFETY: rdma-core's (1). RTLD_NOW: missing symbols show here, and not in the middle of a run.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    match opened {
        // Never closed (2).
        Ok(opened) => Ok(Box::leak(Box::new(opened))),
        Err(error) => Err(LoadError::Library { library, reason: words_of(&error) }),
    }
}

/// The linker's message: libloading hides it behind its own text.
fn words_of(error: &libloading::Error) -> String {
    core::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_one_sentence_with_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let error = Verbs::load_from(Some(folder.path())).unwrap_err();
        let file = folder.path().join("libibverbs.so.1");
        let expected = format!(
            "rdma-core is not installed: apt install rdma-core ibverbs-providers \
             ({}: cannot open shared object file: No such file or directory)",
            file.display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn library_without_a_symbol_is_too_old() {
        // Some library without these symbols that exists wherever tests run.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let Some(libc) =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.ends_with("libc.so.6"))
        else {
            return println!("SKIPPED library_without_a_symbol_is_too_old: no libc.so.6 in this process");
        };
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(libc, folder.path().join("libmlx5.so.1")).unwrap();
        assert_eq!(
            Mlx5dv::load_from(Some(folder.path())).unwrap_err().to_string(),
            "rdma-core is too old, libmlx5.so.1 has no mlx5dv_is_supported: \
             apt install --only-upgrade rdma-core libibverbs1 ibverbs-providers"
        );
    }

    #[test]
    fn installed_library_lists_devices_or_none() {
        let core = match RdmaCore::load() {
            Ok(core) => core,
            Err(error) => return println!("SKIPPED installed_library_lists_devices_or_none: {error}"),
        };
        let devices = core.devices().unwrap();
        for device in devices.iter() {
            assert!(!device.name().is_empty() && device.ibdev_path().ends_with(device.name()), "{device:?}");
        }
        assert!(devices.kernel_has_rdma() || devices.is_empty());
    }
}
