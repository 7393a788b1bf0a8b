//! Tests of which URLs are valid, and which hosts require permission.

use reqwest::Method;
use soong_protocol::{ErrorCode, NetworkPolicy, PermissionsConfig, Scope};

use crate::policy;

fn permissions(network: NetworkPolicy, allowed: &[&str]) -> PermissionsConfig {
    let allowed_hosts = allowed.iter().map(|host| (*host).to_owned()).collect();
    PermissionsConfig {
        network,
        allowed_hosts,
        ..PermissionsConfig::default()
    }
}

#[test]
fn permission_is_for_normalized_host_and_nondefault_port() {
    for (url, want) in [
        ("https://example.org/a?b#c", Some("example.org")),
        ("https://EXAMPLE.org./", Some("example.org")),
        ("http://example.org:80", Some("example.org")),
        ("https://example.org:443", Some("example.org")),
        ("http://example.org:443", Some("example.org:443")),
        ("https://example.org:8443", Some("example.org:8443")),
        ("https://bücher.example", Some("xn--bcher-kva.example")),
        ("http://0x8.8.8.8", Some("8.8.8.8")),
        ("http://134744072", Some("8.8.8.8")),
        ("http://[2606:4700::1111]:80/", Some("[2606:4700::1111]")),
        (
            "http://[2606:4700:0::1111]:8080/",
            Some("[2606:4700::1111]:8080"),
        ),
        (" https://example.org\n", Some("example.org")),
        ("example.org", None),
        ("//example.org", None),
        ("", None),
        ("https://", None),
        ("https://user@example.org", None),
        ("https://user:word@example.org", None),
        ("https://:word@example.org", None),
        ("ftp://example.org", None),
        ("https://exa mple.org", None),
        ("https://example.org:99999", None),
        ("https://./", None),
    ] {
        match (policy::parse_url(url), want) {
            (Ok(url), Some(want)) => {
                assert_eq!(policy::host_of(&url), want, "{url}");
                let access = policy::required_access(
                    &permissions(NetworkPolicy::Ask, &[]),
                    &Method::GET,
                    &url,
                )
                .unwrap()
                .unwrap();
                assert_eq!(
                    access.scope,
                    Scope::Host {
                        host: want.to_owned()
                    },
                    "{url}"
                );
                assert_eq!(access.target, url.as_str());
                assert_eq!(
                    access.note.as_deref(),
                    Some(&*format!("sends a GET request to {want}"))
                );
                assert_eq!(policy::parse_url(&access.target).unwrap(), url, "{url}");
            }
            (Err(error), None) => assert_eq!(error.code, ErrorCode::ValidationError, "{url}"),
            (got, _) => panic!("{url}: {got:?}"),
        }
    }
    let long =
        policy::parse_url(&format!("https://example.org/{}", "a".repeat(9_000))).unwrap_err();
    assert!(long.message.len() < 500, "{long}");
}

#[test]
fn allowed_host_needs_no_permission_and_lookalikes_do() {
    for (pattern, url, is_listed) in [
        ("example.org", "https://example.org/", true),
        ("EXAMPLE.org.", "https://example.org/", true),
        ("example.org", "https://example.org:8443/", true),
        ("example.org:8443", "https://example.org:8443/", true),
        ("example.org:8443", "https://example.org/", false),
        ("example.org:443", "https://example.org/", true),
        ("example.org", "https://www.example.org/", false),
        ("example.org", "https://badexample.org/", false),
        ("example.org", "https://example.org.evil.example/", false),
        ("*.example.org", "https://www.example.org/", true),
        ("*.example.org", "https://a.b.EXAMPLE.org./", true),
        ("*.example.org", "https://example.org/", false),
        ("*.example.org", "https://badexample.org/", false),
        ("*.example.org", "https://example.org.evil.example/", false),
        ("bücher.example", "https://xn--bcher-kva.example/", true),
        ("93.184.216.34", "http://0x5db8d822/", true),
        ("[2606:4700::1111]", "https://[2606:4700:0:0::1111]/", true),
        (
            "[2606:4700::1111]:8443",
            "https://[2606:4700::1111]/",
            false,
        ),
        ("", "https://example.org/", false),
        ("*", "https://example.org/", false),
        ("*.", "https://example.org/", false),
        ("*.org/example", "https://example.org/", false),
        ("user@example.org", "https://example.org/", false),
        ("example.org/path", "https://example.org/path", false),
    ] {
        let url = policy::parse_url(url).unwrap();
        let access = policy::required_access(
            &permissions(NetworkPolicy::Ask, &[pattern]),
            &Method::GET,
            &url,
        )
        .unwrap();
        assert_eq!(access.is_none(), is_listed, "{pattern} {url}");
        let denied = policy::required_access(
            &permissions(NetworkPolicy::Deny, &[pattern]),
            &Method::GET,
            &url,
        );
        assert_eq!(denied.is_ok(), is_listed, "{pattern} {url}");
        if let Err(error) = denied {
            assert_eq!(error.code, ErrorCode::PermissionDenied);
            assert!(error.message.contains("permissions.network"), "{error}");
        }
        assert_eq!(
            policy::required_access(&permissions(NetworkPolicy::Allow, &[]), &Method::GET, &url),
            Ok(None)
        );
    }
}

#[test]
fn redirect_is_followed_to_same_or_permitted_host() {
    for (network, allowed, from, to, followed) in [
        (
            NetworkPolicy::Ask,
            "",
            "http://a.example/",
            "https://a.example/x",
            true,
        ),
        (
            NetworkPolicy::Ask,
            "",
            "https://a.example/",
            "https://a.example:8443/",
            false,
        ),
        (
            NetworkPolicy::Ask,
            "",
            "https://a.example/",
            "https://www.a.example/",
            false,
        ),
        (
            NetworkPolicy::Ask,
            "*.a.example",
            "https://a.example/",
            "https://www.a.example/",
            true,
        ),
        (
            NetworkPolicy::Deny,
            "a.example",
            "https://a.example/",
            "https://b.example/",
            false,
        ),
        (
            NetworkPolicy::Deny,
            "a.example",
            "https://a.example/",
            "https://a.example/b",
            true,
        ),
        (
            NetworkPolicy::Allow,
            "",
            "https://a.example/",
            "https://b.example/",
            true,
        ),
    ] {
        let permissions = permissions(network, &[allowed]);
        let of = |url| policy::parse_url(url).unwrap();
        assert_eq!(
            policy::may_follow(&permissions, &of(from), &of(to)),
            followed,
            "{from} {to}"
        );
    }
}
