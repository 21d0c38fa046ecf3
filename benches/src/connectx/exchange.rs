//! Sockets on both ports, for requests and their responses over TCP.

use core::net::SocketAddrV4;

use wirepath::device::Device;
use wirepath::device::mlx5::{Mlx5Config, Mlx5Device};
use wirepath::device::steering::Rule;

use super::{Error, Model};
use crate::measure::outside::outside_marks;
use crate::sockets::{CLIENT, SERVER, SocketExchange};

/// Sockets on `mlx5_0` and `mlx5_1`, which are to stay as long as they.
pub type OnPorts<W> = (SocketExchange<W>, [Mlx5Device; 2]);

/// Connected; the NICs carry what is sent.
///
/// # Errors
/// A device refused a request.
pub fn exchange(model: Model) -> Result<OnPorts<impl FnMut()>, Error> {
    let (mut client, mut server) = (open("mlx5_0", CLIENT)?, open("mlx5_1", SERVER)?);
    // The model is in this process, and asks the kernel for the pages that it reaches: a NIC makes
    // no calls.
    let carry = move || outside_marks(|| model.settle());
    let exchange = SocketExchange::over(&mut client, &mut server, carry);
    Ok((exchange, [client, server]))
}

fn open(device: &str, local: SocketAddrV4) -> Result<Mlx5Device, Error> {
    let mut device = Mlx5Device::open(&Mlx5Config::new(device))?;
    device.steer(&Rule::tcp(*local.ip(), local.port()), 0)?;
    Ok(device)
}
