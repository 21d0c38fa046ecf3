//! Frames for the tests of the receiving side, built by hand and slowly, so that they share no code
//! with the tested files.

/// A frame that is being built, outermost header first. Its errors are intended.
#[derive(Clone, Debug)]
pub(in crate::hca) struct Frame {
    pub(in crate::hca) dst_mac: [u8; 6],
    pub(in crate::hca) vlan: Option<u16>,
    pub(in crate::hca) service_vlan: Option<u16>,
    pub(in crate::hca) src: &'static str,
    pub(in crate::hca) dst: &'static str,
    /// IPv4 options or IPv6 extension headers, as in the packet.
    pub(in crate::hca) options: Vec<u8>,
    /// IPv4: flags and offset.
    pub(in crate::hca) fragment: u16,
    /// The protocol; after IPv6 extensions the last next header has it too.
    pub(in crate::hca) protocol: u8,
    /// IPv6: the next header, where extensions follow.
    pub(in crate::hca) next_header: Option<u8>,
    pub(in crate::hca) src_port: u16,
    pub(in crate::hca) dst_port: u16,
    pub(in crate::hca) tcp_flags: u8,
    pub(in crate::hca) payload: Vec<u8>,
    /// UDP without a checksum.
    pub(in crate::hca) no_checksum: bool,
    /// Bytes behind the IP packet.
    pub(in crate::hca) padding: usize,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            dst_mac: [0x02, 0, 0, 0, 0x5c, 0],
            vlan: None,
            service_vlan: None,
            src: "10.0.0.1",
            dst: "10.0.0.2",
            options: Vec::new(),
            fragment: 0,
            protocol: 17,
            next_header: None,
            src_port: 1000,
            dst_port: 2000,
            tcp_flags: 0x10,
            payload: b"some payload of odd length, 33 b.".to_vec(),
            no_checksum: false,
            padding: 0,
        }
    }
}

pub(in crate::hca) const TCP: u8 = 6;

impl Frame {
    pub(in crate::hca) fn bytes(&self) -> Vec<u8> {
        let is_v6 = self.src.contains(':');
        let l4 = self.l4(is_v6);
        let mut bytes = [&self.dst_mac[..], &[2, 0, 0, 0, 0, 1]].concat();
        for (ether_type, tag) in [(0x88a8_u16, self.service_vlan), (0x8100, self.vlan)] {
            if let Some(tag) = tag {
                bytes.extend(ether_type.to_be_bytes());
                bytes.extend(tag.to_be_bytes());
            }
        }
        bytes.extend(if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        bytes.extend(if is_v6 { self.ipv6(l4.len()) } else { self.ipv4(l4.len()) });
        bytes.extend(l4);
        bytes.extend(vec![0xdd; self.padding]);
        bytes
    }

    fn ipv4(&self, l4_len: usize) -> Vec<u8> {
        let len = 20 + self.options.len();
        let mut ip = vec![0x40 | (len / 4) as u8, 0xb8];
        ip.extend(((len + l4_len) as u16).to_be_bytes());
        ip.extend([0x12, 0x34]);
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([64, self.protocol, 0, 0]);
        ip.extend(address(self.src));
        ip.extend(address(self.dst));
        ip.extend(&self.options);
        let checksum = !slow_sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip
    }

    fn ipv6(&self, l4_len: usize) -> Vec<u8> {
        let mut ip = vec![0x6b, 0x8a, 0xbc, 0xde];
        ip.extend(((self.options.len() + l4_len) as u16).to_be_bytes());
        ip.extend([self.next_header.unwrap_or(self.protocol), 64]);
        ip.extend(address(self.src));
        ip.extend(address(self.dst));
        ip.extend(&self.options);
        ip
    }

    fn l4(&self, is_v6: bool) -> Vec<u8> {
        let ports = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        let (mut l4, field) = match self.protocol {
            TCP => ([&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.tcp_flags, 0xff, 0xff, 0, 0, 0, 0]].concat(), 16),
            17 => ([&ports[..], &(8 + self.payload.len() as u16).to_be_bytes(), &[0, 0]].concat(), 6),
            _ => return self.payload.clone(),
        };
        l4.extend(&self.payload);
        let len = l4.len() as u32;
        let pseudo =
            [address(self.src), address(self.dst), len.to_be_bytes().to_vec(), vec![0, self.protocol]].concat();
        let checksum = match !slow_sum(&[pseudo, l4.clone()].concat()) {
            0 if self.protocol == 17 => 0xffff,
            _ if self.no_checksum && !is_v6 => 0,
            checksum => checksum,
        };
        l4[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        l4
    }
}

fn address(text: &str) -> Vec<u8> {
    match text.parse() {
        Ok(std::net::IpAddr::V4(ip)) => ip.octets().to_vec(),
        Ok(std::net::IpAddr::V6(ip)) => ip.octets().to_vec(),
        Err(_) => panic!("{text} is no address"),
    }
}

/// RFC 1071 as it reads: 16 bits at a time, carries added back at once.
pub(in crate::hca) fn slow_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, pair| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum + u16::from(carry)
    })
}
