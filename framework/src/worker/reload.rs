//! The request to read a configuration again: SIGHUP, by the custom of daemons.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGHUP;
use signal_hook::flag;

/// Whether SIGHUP has come. Without this the signal ends the process.
#[derive(Clone, Debug)]
pub struct ReloadSignal(Arc<AtomicBool>);

impl ReloadSignal {
    /// Notes the signal from now on. Call it once per process.
    ///
    /// # Errors
    /// The system's, where it takes no handler.
    pub fn new() -> io::Result<Self> {
        let reload = Self(Arc::default());
        flag::register(SIGHUP, Arc::clone(&reload.0))?;
        Ok(reload)
    }

    /// Whether the signal has come since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
