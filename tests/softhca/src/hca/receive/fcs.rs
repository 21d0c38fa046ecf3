//! CRC-32: the check value of RoCE packets, and the frame check sequence for queues that want it
//! delivered (`IBV_WQ_FLAGS_SCATTER_FCS`). Frames on our wires have none.

/// CRC-32 of IEEE 802.3 3.2.9, in the order of the wire.
pub(in crate::hca) fn crc32(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(u32::MAX, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
    (!crc).to_le_bytes()
}

/// The effect of each byte on the checksum, bits reflected.
static TABLE: [u32; 256] = table();

const POLYNOMIAL: u32 = 0xedb8_8320;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926_u32.to_le_bytes());
    }
}
