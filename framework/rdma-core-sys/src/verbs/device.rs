//! The devices that libibverbs finds. Input: the libraries. Output: names, GUIDs, folders in sysfs,
//! and open contexts. The caller reads the content of those folders (PCI address, network
//! interfaces).
//!
//! Invariants:
//! 1. `List::raw` is the result of `ibv_get_device_list`. It is freed once, when its last `Device`
//!    is dropped; until then all devices in it are valid.
//! 2. A device's texts are zero-terminated arrays of the structure; they do not change after the
//!    list was made.

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::Context;
use super::error::VerbsError;
use crate::bindings::ibv_device;
use crate::load::RdmaCore;

/// The devices at the time of the call.
///
/// An empty list is a valid result, not an error: [`DeviceList::kernel_has_rdma`] distinguishes a
/// machine without such a NIC from one whose kernel modules are not loaded.
#[derive(Debug)]
pub struct DeviceList {
    devices: Vec<Device>,
    kernel_has_rdma: bool,
}

impl DeviceList {
    /// Whether the kernel supports RDMA at all. If not: `modprobe ib_uverbs mlx5_ib`.
    pub fn kernel_has_rdma(&self) -> bool {
        self.kernel_has_rdma
    }

    /// The device of this name, such as `mlx5_0`.
    pub fn by_name(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name() == name)
    }
}

impl Deref for DeviceList {
    type Target = [Device];

    fn deref(&self) -> &[Device] {
        &self.devices
    }
}

/// A device that can be opened. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    raw: NonNull<ibv_device>,
    list: Arc<List>,
}

/// The result of `ibv_get_device_list`.
struct List {
    raw: NonNull<*mut ibv_device>,
    core: RdmaCore,
}

// SAFETY: 1, 2: read only.
unsafe impl Send for List {}
// SAFETY: 1, 2: read only.
unsafe impl Sync for List {}
// SAFETY: 1, 2: read only; libibverbs counts the users of a device under a lock.
unsafe impl Send for Device {}
// SAFETY: 1, 2: as above.
unsafe impl Sync for Device {}

impl Device {
    /// All current devices.
    pub(crate) fn list(core: &RdmaCore) -> Result<DeviceList, VerbsError> {
        let mut count: c_int = 0;
        // SAFETY: `count` is ours.
        let raw = unsafe { (core.verbs().ibv_get_device_list)(&raw mut count) };
        let raw = match VerbsError::check_object("ibv_get_device_list", raw) {
            Ok(raw) => raw,
            // The library returns this if /sys/class/infiniband_verbs does not exist.
            Err(error) if error.errno() == libc::ENOSYS => {
                return Ok(DeviceList { devices: Vec::new(), kernel_has_rdma: false });
            }
            Err(error) => return Err(error),
        };
        let list = Arc::new(List { raw, core: core.clone() });
        let devices = (0..usize::try_from(count).unwrap_or_default())
            // SAFETY: the list has `count` entries (1).
            .map_while(|idx| NonNull::new(unsafe { raw.as_ptr().add(idx).read() }))
            .map(|raw| Self { raw, list: Arc::clone(&list) })
            .collect();
        Ok(DeviceList { devices, kernel_has_rdma: true })
    }

    /// Its name in the kernel, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        // SAFETY: 1.
        self.text(unsafe { &raw const (*self.raw.as_ptr()).name }).to_str().unwrap_or_default()
    }

    /// Its folder in sysfs: `/sys/class/infiniband/mlx5_0`. There `device` links to the PCI device,
    /// and `device/net` lists the interfaces.
    pub fn ibdev_path(&self) -> &Path {
        // SAFETY: 1.
        self.path(unsafe { &raw const (*self.raw.as_ptr()).ibdev_path })
    }

    /// The device node: `/dev/infiniband/uverbs0`.
    pub fn node_path(&self) -> PathBuf {
        // SAFETY: 1.
        let name = self.path(unsafe { &raw const (*self.raw.as_ptr()).dev_name });
        Path::new("/dev/infiniband").join(name)
    }

    /// Its GUID.
    pub fn guid(&self) -> u64 {
        // SAFETY: 1.
        u64::from_be(unsafe { (self.core().verbs().ibv_get_device_guid)(self.raw.as_ptr()) })
    }

    /// Whether libmlx5 drives it: a ConnectX-4 or later, or a BlueField.
    pub fn is_mlx5(&self) -> bool {
        // SAFETY: 1.
        unsafe { (self.core().mlx5().mlx5dv_is_supported)(self.raw.as_ptr()) }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The node is missing, or access is denied.
    pub fn open(&self) -> Result<Context, VerbsError> {
        Context::open(self)
    }

    pub(super) fn core(&self) -> &RdmaCore {
        &self.list.core
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_device {
        self.raw.as_ptr()
    }

    fn path<const LEN: usize>(&self, text: *const [c_char; LEN]) -> &Path {
        Path::new(OsStr::from_bytes(self.text(text).to_bytes()))
    }

    /// `text` is a field of our device.
    fn text<const LEN: usize>(&self, text: *const [c_char; LEN]) -> &CStr {
        // SAFETY: a field of a valid device, `LEN` bytes that do not change (1, 2).
        let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), LEN) };
        CStr::from_bytes_until_nul(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).field("ibdev_path", &self.ibdev_path()).finish()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: 1: the last device of the list is being dropped.
        unsafe { (self.core.verbs().ibv_free_device_list)(self.raw.as_ptr()) };
    }
}
