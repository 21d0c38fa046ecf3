//! Passive opens: listeners, admission, SYN cookies, ports, connections that leave for another
//! listener, and the secrets behind initial sequence numbers.

pub(super) mod admission;
pub(super) mod handover;
pub(super) mod listener;
pub(super) mod ports;
pub(super) mod secret;
pub(super) mod syn_cookie;
