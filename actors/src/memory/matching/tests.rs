//! Table tests of matching, and a test of its speed.

use soong_protocol::{ExperienceId, Metrics};

use super::*;

fn known(id: usize, intent: &[&str], state: &[&str], helpful: u32, harmful: u32) -> Experience {
    let texts = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    Experience {
        id: ExperienceId::new(format!("ex_{id:03}")),
        trace_id: None,
        category: "other".to_owned(),
        tags: normalize_tags(&texts(intent), &texts(state)),
        metrics: Metrics { helpful, harmful },
        created_at: None,
        text: "x".to_owned(),
    }
}

#[test]
fn intent_ranks_before_state_and_state_before_helpfulness() {
    let all = [
        known(1, &["other"], &["other"], 99, 0),
        known(2, &[], &["rust", "ci"], 50, 0),
        known(3, &["fix test"], &[], 0, 3),
        known(4, &["fix-test"], &["rust"], 0, 9),
        known(5, &["fix-test", "deploy"], &[], 0, 0),
        known(6, &["fix-test"], &["rust"], 2, 0),
        known(7, &["Fix Test"], &["Rust"], 2, 0),
        known(8, &[], &["rust"], 7, 6),
    ];
    let texts = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    for (intent, state, limit, want) in [
        (
            &["fix-test", "deploy"][..],
            &["rust", "ci"][..],
            9,
            &[5, 6, 7, 4, 3, 2, 8][..],
        ),
        (&["fix-test", "deploy"], &["rust", "ci"], 3, &[5, 6, 7]),
        (&["fix-test", "deploy"], &["rust", "ci"], 0, &[]),
        (&[], &["rust"], 9, &[2, 6, 7, 8, 4]),
        (&["nothing"], &["like-it"], 9, &[]),
        (&[], &[], 9, &[]),
    ] {
        let found = matching(&all, &normalize_tags(&texts(intent), &texts(state)), limit);
        let ids: Vec<usize> = found
            .iter()
            .map(|known| known.id.as_str()[3..].parse().unwrap())
            .collect();
        assert_eq!(ids, want, "{intent:?} {state:?} {limit}");
    }
}

#[test]
fn tags_are_normalized_and_limited() {
    for (text, want) in [
        ("Fix Test", "fix-test"),
        ("fix_test", "fix-test"),
        ("  --fix..test!! ", "fix-test"),
        ("修复 测试", "修复-测试"),
        ("C++", "c"),
        ("---", ""),
        (&"x".repeat(60), &"x".repeat(48)),
    ] {
        assert_eq!(normalize_tag(text), want);
    }
    let many: Vec<String> = (0..40).map(|n| format!("t{}", n / 2)).collect();
    assert_eq!(normalize_tags(&many, &[]).intent.len(), MAX_TAGS);
}
