//! Cables: to another model, to a packet socket, to a TAP, to a capture.
