//! The structs that a client and the kernel exchange, by the names of the kernel's headers: the
//! general ones (`verbs`), those of the mlx5 driver (`mlx5`), and their layout in bytes (`layout`).

mod layout;
pub(super) mod mlx5;
pub(super) mod verbs;

pub(super) use layout::{Layout, read_at};
