//! The devices as text: a line each, and below it its addresses and the port's flow control.

use super::{Mode, RdmaDevice};

const HEADINGS: [&str; 8] = ["NAME", "DRIVER", "MODE", "STATE", "MTU", "SPEED", "UPLINK", "DESCRIPTION"];
/// Width of the name of what is below a device.
const FACT_WIDTH: usize = 6;

/// The whole report.
pub(super) fn render(devices: &[RdmaDevice]) -> String {
    if devices.is_empty() {
        return "no RDMA device, and no Ethernet interface that wirepath could speak RoCE on\n".to_owned();
    }
    let rows: Vec<[String; HEADINGS.len()]> = devices.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; HEADINGS.len()] = core::array::from_fn(width);
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&HEADINGS.map(str::to_owned));
    for (device, row) in devices.iter().zip(&rows) {
        text += &line(row);
        facts(device).iter().for_each(|(name, fact)| text += &format!("  {name:FACT_WIDTH$}  {fact}\n"));
    }
    text
}

fn row(device: &RdmaDevice) -> [String; HEADINGS.len()] {
    let mode = match device.mode {
        Mode::Hardware => "hardware",
        Mode::Software => "software",
    };
    let mtu = device.mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
    let uplink = device.uplink.clone().unwrap_or_else(|| "-".to_owned());
    let (name, driver, state) = (device.name.clone(), device.driver.clone(), device.state.clone());
    [name, driver, mode.to_owned(), state, mtu, device.rate.clone(), uplink, device.description.clone()]
}

fn facts(device: &RdmaDevice) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = device
        .gids
        .iter()
        .map(|gid| (format!("GID {}", gid.index), format!("{}, {}", gid.address, gid.version)))
        .collect();
    match &device.pfc {
        Some(Ok(pfc)) => facts.push(("PFC".to_owned(), pfc.to_string())),
        Some(Err(why)) => facts.push(("PFC".to_owned(), why.clone())),
        None => {}
    }
    facts.push(("ECN".to_owned(), device.ecn.clone()));
    facts
}

#[cfg(test)]
mod tests {
    use super::super::{Gid, RdmaDevice};
    use super::*;
    use crate::dcb::Pfc;

    #[test]
    fn device_reads_as_in_esxcli_with_its_addresses_below() {
        let device = RdmaDevice {
            name: "mlx5_0".into(),
            driver: "mlx5_core".into(),
            mode: Mode::Hardware,
            state: "active".into(),
            mtu: Some(4096),
            rate: "100 Gbit/s".into(),
            uplink: Some("eth1".into()),
            description: "desk mlx5_0".into(),
            gids: vec![Gid { index: 3, address: "::ffff:10.0.0.1".parse().unwrap(), version: "RoCE v2".into() }],
            pfc: Some(Ok(Pfc { priorities: 1 << 3, ..Pfc::default() })),
            ecn: "the driver does not say".into(),
        };
        let expected = "\
            NAME    DRIVER     MODE      STATE   MTU   SPEED       UPLINK  DESCRIPTION\n\
            mlx5_0  mlx5_core  hardware  active  4096  100 Gbit/s  eth1    desk mlx5_0\n  \
              GID 3   ::ffff:10.0.0.1, RoCE v2\n  \
              PFC     on priority 3, 0 pauses sent, 0 received\n  \
              ECN     the driver does not say\n";
        assert_eq!(render(&[device]), expected);
    }

    #[test]
    fn nothing_is_a_sentence() {
        assert!(render(&[]).starts_with("no RDMA device"));
    }
}
