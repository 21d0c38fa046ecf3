//! The devices as JSON: one object with an array. Unknown values are null.

use serde_json::{Value, json};

use super::{Gid, Mode, RdmaDevice};
use crate::dcb::Pfc;

/// One object and a newline.
pub(super) fn render(devices: &[RdmaDevice]) -> String {
    let devices: Vec<Value> = devices.iter().map(device).collect();
    format!("{}\n", json!({ "devices": devices }))
}

fn device(device: &RdmaDevice) -> Value {
    let gids: Vec<Value> = device.gids.iter().map(gid).collect();
    let (pfc, no_pfc) = match &device.pfc {
        Some(Ok(pfc)) => (Some(flow_control(pfc)), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    json!({
        "name": device.name,
        "driver": device.driver,
        "mode": match device.mode {
            Mode::Hardware => "hardware",
            Mode::Software => "software",
        },
        "state": device.state,
        "mtu": device.mtu,
        "speed": known(&device.rate),
        "uplink": device.uplink,
        "description": device.description,
        "gids": gids,
        "pfc": pfc,
        "no_pfc": no_pfc,
        "ecn": device.ecn,
    })
}

fn gid(gid: &Gid) -> Value {
    json!({ "index": gid.index, "address": gid.address.to_string(), "version": gid.version })
}

fn flow_control(pfc: &Pfc) -> Value {
    let is_on = |priority: &u8| pfc.priorities >> priority & 1 == 1;
    let priorities: Vec<u8> = (0..8).filter(is_on).collect();
    json!({ "priorities": priorities, "pauses_tx": pfc.sent, "pauses_rx": pfc.received })
}

/// The table has a dash for what nobody knows.
fn known(text: &str) -> Option<&str> {
    (text != "-").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device_with(pfc: Option<Result<Pfc, String>>) -> RdmaDevice {
        let address = "::ffff:10.0.0.1".parse().unwrap();
        RdmaDevice {
            name: "mlx5_0".into(),
            driver: "mlx5_core".into(),
            mode: Mode::Hardware,
            state: "active".into(),
            mtu: Some(4096),
            rate: "100 Gbit/s".into(),
            uplink: Some("eth1".into()),
            description: "desk mlx5_0".into(),
            gids: vec![Gid { index: 3, address, version: "RoCE v2".into() }],
            pfc,
            ecn: "the driver does not say".into(),
        }
    }

    fn rendered(device: RdmaDevice) -> Value {
        let text = render(&[device]);
        assert!(text.ends_with("}\n"));
        let Value::Object(mut all) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        all.remove("devices").unwrap()[0].take()
    }

    #[test]
    fn device_has_its_columns_and_its_addresses() {
        let pfc = Pfc { priorities: 1 << 3 | 1, sent: 7, ..Pfc::default() };
        let expected = json!({
            "name": "mlx5_0",
            "driver": "mlx5_core",
            "mode": "hardware",
            "state": "active",
            "mtu": 4096,
            "speed": "100 Gbit/s",
            "uplink": "eth1",
            "description": "desk mlx5_0",
            "gids": [{ "index": 3, "address": "::ffff:10.0.0.1", "version": "RoCE v2" }],
            "pfc": { "priorities": [0, 3], "pauses_tx": 7, "pauses_rx": 0 },
            "no_pfc": null,
            "ecn": "the driver does not say",
        });
        assert_eq!(rendered(device_with(Some(Ok(pfc)))), expected);
    }

    #[test]
    fn what_nobody_knows_is_null() {
        let mut device = device_with(Some(Err("the kernel does not say".into())));
        (device.mtu, device.uplink, device.rate) = (None, None, "-".into());
        let device = rendered(device);
        for key in ["mtu", "uplink", "speed", "pfc"] {
            assert_eq!(device[key], Value::Null, "{key}");
        }
        assert_eq!(device["no_pfc"], "the kernel does not say");
    }
}
