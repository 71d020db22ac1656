//! Keys for clients that are known only by their address.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;

/// A key for a client that is known only by its address: the address itself for IPv4, its /64 network for IPv6, which is
/// what a single subscriber usually gets.
///
/// ```
/// use rl_client::http::ip_key;
///
/// assert_eq!(ip_key([192, 0, 2, 7].into()), "192.0.2.7");
/// let addresses: [std::net::IpAddr; 2] = ["2001:db8::1".parse()?, "2001:db8::ffff:2".parse()?];
/// assert_eq!(ip_key(addresses[0]), "2001:db8::/64");
/// assert_eq!(ip_key(addresses[0]), ip_key(addresses[1]));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn ip_key(address: IpAddr) -> String {
    ip_key_with_prefix(address, 64)
}

/// Like [`ip_key`], with another length of the IPv6 prefix: 56 or 48 where providers assign larger networks.
#[must_use]
pub fn ip_key_with_prefix(address: IpAddr, ipv6_prefix_len: u32) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let prefix = ipv6_prefix_len.min(128);
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            format!("{}/{prefix}", Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

/// The client's address in `X-Forwarded-For`, if the last `trusted_proxies` hops are your own proxies: the address that the
/// outermost of them saw. Entries that clients add themselves are ignored.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use rl_client::http::forwarded_ip;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 192.0.2.7, 10.0.0.1"));
/// assert_eq!(forwarded_ip(&headers, 2), Some([192, 0, 2, 7].into()));
/// assert_eq!(forwarded_ip(&headers, 4), None);
/// ```
#[must_use]
pub fn forwarded_ip(headers: &HeaderMap, trusted_proxies: usize) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let hops: Vec<&str> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .collect();
    let outermost = hops.len().checked_sub(trusted_proxies.max(1))?;
    hops.get(outermost)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let key = |text: &str, prefix| text.parse().map(|ip| ip_key_with_prefix(ip, prefix));
        assert_eq!(key("::ffff:192.0.2.7", 64), Ok("192.0.2.7".into()));
        assert_eq!(
            key("2001:db8:1:2ff::1", 56),
            Ok("2001:db8:1:200::/56".into())
        );
        assert_eq!(key("2001:db8::1", 0), Ok("::/0".into()));
        assert_eq!(key("2001:db8::1", 200), Ok("2001:db8::1/128".into()));
    }
}
