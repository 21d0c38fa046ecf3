//! The libraries and their symbols. Enters: nothing but the linker's search path. Leaves: tables of
//! function pointers, valid as long as the process lives.
//!
//! A symbol has several versions in libibverbs (`ibv_open_device@IBVERBS_1.0` has other structs
//! than `@@IBVERBS_1.1`); `dlsym` gives the default one, which is the one that the headers
//! describe.
//!
//! Invariants:
//! 1. The libraries are rdma-core's: they carry its names, or stand in the folder that the operator
//!    named in `RDMA_CORE_LIB_DIR`. So their initialisers are harmless, and a symbol has the
//!    signature that the headers say. Where the program's file gives it rights, whoever starts it
//!    may be no operator, and is not asked.
//! 2. A library that was opened is never closed: function pointers stay valid, also those that the
//!    library gave to others.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::bindings;
use crate::verbs::{Device, DeviceList, VerbsError};

/// A folder to take libibverbs.so.1 and libmlx5.so.1 from, instead of the linker's search path: for
/// an rdma-core that was built by hand.
pub const FOLDER_VARIABLE: &str = "RDMA_CORE_LIB_DIR";

/// The folder that the operator has named. Code is run from there, so not where the program has
/// rights that whoever set the variable need not have (getauxval(3), AT_SECURE): the linker does
/// not look at `LD_LIBRARY_PATH` then, either.
fn folder() -> Option<PathBuf> {
    // SAFETY: a number out of the vector that the kernel gave to the process; no address is passed.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    std::env::var_os(FOLDER_VARIABLE).filter(|_| !is_privileged).map(PathBuf::from)
}

/// Writes the table of a library: a function pointer for each symbol, with the signature that the
/// headers give it.
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
    /// What libibverbs exports.
    Verbs of "libibverbs.so.1" {
        ibv_get_device_list: ibv_get_device_list_fn,
        ibv_free_device_list: ibv_free_device_list_fn,
        ibv_get_device_guid: ibv_get_device_guid_fn,
        ibv_open_device: ibv_open_device_fn,
        ibv_close_device: ibv_close_device_fn,
        ibv_query_device: ibv_query_device_fn,
        ibv_query_port: ibv_query_port_fn,
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
        ibv_create_qp: ibv_create_qp_fn,
        ibv_modify_qp: ibv_modify_qp_fn,
        ibv_query_qp: ibv_query_qp_fn,
        ibv_destroy_qp: ibv_destroy_qp_fn,
    }
}

symbols! {
    /// What libmlx5 exports: the direct verbs.
    Mlx5dv of "libmlx5.so.1" {
        mlx5dv_is_supported: mlx5dv_is_supported_fn,
        mlx5dv_query_device: mlx5dv_query_device_fn,
        mlx5dv_create_cq: mlx5dv_create_cq_fn,
        mlx5dv_create_qp: mlx5dv_create_qp_fn,
        mlx5dv_create_wq: mlx5dv_create_wq_fn,
        mlx5dv_init_obj: mlx5dv_init_obj_fn,
        mlx5dv_get_clock_info: mlx5dv_get_clock_info_fn,
    }
}

/// Both libraries: where all begins. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RdmaCore(Arc<(Verbs, Mlx5dv)>);

impl RdmaCore {
    /// Loads both libraries.
    ///
    /// # Errors
    /// One is missing, or is too old.
    pub fn load() -> Result<Self, LoadError> {
        Ok(Self::of(Verbs::load()?, Mlx5dv::load()?))
    }

    pub(crate) fn of(verbs: Verbs, mlx5: Mlx5dv) -> Self {
        Self(Arc::new((verbs, mlx5)))
    }

    /// The devices that this process can see now. None at all is no error: see [`DeviceList`].
    ///
    /// # Errors
    /// The kernel was asked and refused to say.
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

/// Why the libraries cannot be used. Its text is one sentence that ends with the command that
/// helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The linker did not find the library, or could not load it.
    Library {
        /// Its file name.
        library: &'static str,
        /// What the linker said; it names the file.
        reason: String,
    },
    /// The library has not all that we need.
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

/// Opens a library for ever.
fn open(library: &'static str, folder: Option<&Path>) -> Result<&'static Library, LoadError> {
    let path = folder.map_or_else(|| library.into(), |folder| folder.join(library));
    // SAFETY: rdma-core's (1). RTLD_NOW: what is missing shows here, and not in the middle of a
    // run.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    match opened {
        // Never closed (2).
        Ok(opened) => Ok(Box::leak(Box::new(opened))),
        Err(error) => Err(LoadError::Library { library, reason: words_of(&error) }),
    }
}

/// What the linker said: libloading keeps it behind its own words.
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
        // Some library that has none of the symbols, and is there wherever tests run.
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
