//! `wirepath rdma` over AF_XDP and the queues of a software ConnectX: against itself, against
//! programs of rdma-core on a software ConnectX, and against the RoCE of Linux (rxe) in a guest.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

mod carriers;
mod connectx;
mod ends;
mod itself;
mod linux;
