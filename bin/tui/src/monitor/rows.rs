//! Rows of the tree: which actors are shown, below which parent, and in which order.
//!
//! Pure. There are two arrangements. By task, a child run is below its parent run, and supervisors
//! without an alarm are hidden. By supervision, each actor is below its supervisor. Invariant:
//! every visible actor is shown exactly once, even if its parent is missing.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use soong_protocol::tree::ActorKind;

use super::{
    actor::{Actor, Alert, Key},
    actor_index::ActorIndex,
};

/// Maximum depth that is indented; deeper rows have the same indentation.
const MAX_INDENT_DEPTH: usize = 40;

/// Sort order of siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Started,
    Urgent,
    Tokens,
    Cost,
    LastProgress,
    Mailbox,
    Restarts,
}

impl Sort {
    pub(crate) const ALL: [Self; 7] = [
        Self::Started,
        Self::Urgent,
        Self::Tokens,
        Self::Cost,
        Self::LastProgress,
        Self::Mailbox,
        Self::Restarts,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Started => "start",
            Self::Urgent => "urgency",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::LastProgress => "last progress",
            Self::Mailbox => "mailbox",
            Self::Restarts => "restarts",
        }
    }

    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// Selection and arrangement of the rows.
#[derive(Debug, Clone)]
pub(crate) struct TreeView {
    /// Arrange by supervision instead of by task.
    pub(crate) group_by_supervisor: bool,
    pub(crate) sort: Sort,
    /// Show only actors that contain this text, and their ancestors. Lower case; empty if there is
    /// no filter.
    pub(crate) filter: String,
    /// Show only actors that need attention, and their ancestors.
    pub(crate) only_urgent: bool,
    /// Show ended runs too.
    pub(crate) with_ended: bool,
    pub(crate) folded: HashSet<Key>,
}

impl TreeView {
    /// Returns whether the rows depend only on the set of actors and on their ended and alarm
    /// states.
    pub(crate) fn depends_on_structure_only(&self) -> bool {
        self.sort == Sort::Started && self.is_unfiltered()
    }

    /// Returns whether no actor is filtered out by its content.
    pub(crate) fn is_unfiltered(&self) -> bool {
        self.filter.is_empty() && !self.only_urgent
    }
}

impl Default for TreeView {
    fn default() -> Self {
        Self {
            group_by_supervisor: false,
            sort: Sort::Started,
            filter: String::new(),
            only_urgent: false,
            with_ended: true,
            folded: HashSet::new(),
        }
    }
}

/// One row of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActorRow {
    pub(crate) key: Key,
    /// For each level, from the top: whether a later sibling follows on it. The last entry is the
    /// row's own level.
    pub(crate) branches: Vec<bool>,
    /// Number of hidden rows if the row is folded.
    pub(crate) hidden: usize,
    pub(crate) has_children: bool,
    /// Whether the row is shown only as the ancestor of another row.
    pub(crate) is_context: bool,
}

/// Returns the rows in display order.
pub(crate) fn rows(actors: &ActorIndex, view: &TreeView) -> Vec<ActorRow> {
    let Some(root) = actors.root() else {
        return Vec::new();
    };
    let shown = shown(actors, view);
    let mut below: HashMap<&str, Vec<&Actor>> = HashMap::new();
    for actor in actors
        .iter()
        .filter(|actor| shown.contains_key(&*actor.key) && actor.key != root.key)
    {
        let parent = parent(actors, view, actor)
            .filter(|parent| shown.contains_key(&*parent.key))
            .unwrap_or(root);
        below.entry(&parent.key).or_default().push(actor);
    }
    for family in below.values_mut() {
        family.sort_by_cached_key(|actor| rank(actor, view.sort));
    }
    let mut rows = Vec::new();
    let mut open: Vec<(&Actor, Vec<bool>)> = vec![(root, Vec::new())];
    while let Some((actor, rails)) = open.pop() {
        let children = below
            .get(&*actor.key)
            .map(Vec::as_slice)
            .unwrap_or_default();
        // With a filter, matching rows are shown even in folded parts.
        let is_folded = view.is_unfiltered() && view.folded.contains(&actor.key);
        rows.push(ActorRow {
            key: actor.key.clone(),
            hidden: if is_folded { count(&below, actor) } else { 0 },
            has_children: !children.is_empty(),
            is_context: shown.get(&*actor.key).is_some_and(|is_found| !is_found),
            branches: rails.clone(),
        });
        if is_folded {
            continue;
        }
        for (at, child) in children.iter().enumerate().rev() {
            let mut rails = rails.clone();
            if rails.len() < MAX_INDENT_DEPTH {
                rails.push(at + 1 < children.len());
            }
            open.push((child, rails));
        }
    }
    rows
}

fn count(below: &HashMap<&str, Vec<&Actor>>, actor: &Actor) -> usize {
    let mut open = vec![actor];
    let mut count = 0;
    while let Some(actor) = open.pop() {
        let children = below
            .get(&*actor.key)
            .map(Vec::as_slice)
            .unwrap_or_default();
        count += children.len();
        open.extend(children);
    }
    count
}

/// Returns the visible actors, and whether each of them matches or is only an ancestor.
fn shown<'f>(actors: &'f ActorIndex, view: &TreeView) -> HashMap<&'f str, bool> {
    let is_there = |actor: &&Actor| {
        (view.with_ended || !actor.has_ended)
            && (view.group_by_supervisor || !is_hidden_supervisor(actor))
    };
    let is_plain = view.is_unfiltered();
    let is_found = |actor: &&Actor| {
        let is_urgent =
            !view.only_urgent || actor.alarm().is_some_and(|alarm| alarm > Alert::Restarted);
        is_urgent && (view.filter.is_empty() || contains_text(actors, actor, &view.filter))
    };
    let mut shown: HashMap<&str, bool> = HashMap::new();
    for actor in actors.iter().filter(is_there) {
        if is_plain {
            shown.insert(&actor.key, true);
            continue;
        }
        if !is_found(&actor) {
            continue;
        }
        shown.insert(&actor.key, true);
        let mut above = parent(actors, view, actor);
        while let Some(actor) = above.filter(|actor| !shown.contains_key(&*actor.key)) {
            shown.insert(&actor.key, false);
            above = parent(actors, view, actor);
        }
    }
    if let Some(root) = actors.root() {
        shown.entry(&root.key).or_insert(is_plain);
    }
    shown
}

/// Returns whether an actor is hidden in the arrangement by task: a supervisor without an alarm.
fn is_hidden_supervisor(actor: &Actor) -> bool {
    let keeps = matches!(
        actor.view.kind,
        ActorKind::SessionSupervisor
            | ActorKind::RunSupervisor
            | ActorKind::SubAgentSupervisor
            | ActorKind::ArtifactStoreSupervisor
            | ActorKind::McpSupervisor
    );
    keeps && actor.alarm().is_none()
}

/// Returns the parent of an actor in the current arrangement.
pub(crate) fn parent<'f>(
    actors: &'f ActorIndex,
    view: &TreeView,
    actor: &Actor,
) -> Option<&'f Actor> {
    let up = |actor: &Actor| actors.get(actor.view.parent.as_deref()?);
    if view.group_by_supervisor {
        return up(actor);
    }
    if let Some(above) = actor
        .logical_parents
        .iter()
        .flatten()
        .find_map(|key| actors.get(key))
    {
        return Some(above);
    }
    let mut above = up(actor)?;
    while is_hidden_supervisor(above) {
        above = up(above)?;
    }
    Some(above)
}

/// Returns the sort key of an actor, in ascending order.
fn rank(actor: &Actor, sort: Sort) -> (u8, Reverse<u64>, i64, Key) {
    let kind = match actor.view.kind {
        ActorKind::Session | ActorKind::SessionSupervisor => 1,
        ActorKind::Run | ActorKind::RunSupervisor => 0,
        ActorKind::SubAgentSupervisor => 2,
        ActorKind::WorkingSet => 3,
        ActorKind::ModelGateway => 4,
        ActorKind::ArtifactStoreSupervisor => 5,
        ActorKind::McpSupervisor | ActorKind::McpServer => 6,
        ActorKind::Journal | ActorKind::RuntimeSupervisor => 7,
    };
    let spent = actor.spent();
    let by = match sort {
        Sort::Started => 0,
        Sort::Urgent => actor.alarm().map_or(0, |alarm| alarm as u64 + 1),
        Sort::Tokens => spent.tokens,
        Sort::Cost => spent.cost.map_or(u64::MAX, soong_protocol::Usd::as_nanos),
        // The run without progress for the longest time comes first.
        Sort::LastProgress => {
            let progress = actor.view.run.as_ref().and_then(|run| run.last_progress);
            progress
                .filter(|_| !actor.has_ended)
                .map_or(0, |at| u64::MAX - at.as_millis().cast_unsigned())
        }
        Sort::Mailbox => u64::try_from(actor.view.mailbox).unwrap_or(u64::MAX),
        Sort::Restarts => u64::from(actor.view.restarts),
    };
    (
        kind,
        Reverse(by),
        actor.view.started_at.as_millis(),
        actor.key.clone(),
    )
}

/// Returns whether a text of an actor, or the slug of its session, contains the filter.
fn contains_text(actors: &ActorIndex, actor: &Actor, filter: &str) -> bool {
    let view = &actor.view;
    let run = view.run.as_ref();
    let texts = [
        Some(actor.state()),
        Some(&*view.id),
        actor.slug(),
        Some(view.kind.as_str()),
        Some(&*view.activity),
        view.last_error.as_deref(),
        run.map(|run| &*run.agent_type),
        run.map(|run| &*run.task),
        run.and_then(|run| run.goal.as_deref()),
    ];
    let of_session = || actors.session(&actor.session()?)?.slug();
    texts
        .into_iter()
        .flatten()
        .any(|text| contains(text, filter))
        || of_session().is_some_and(|slug| contains(slug, filter))
}

/// Returns whether a text contains another one, which is in lower case, in any case. Does not
/// allocate for ASCII, because a filter reads every text of every actor.
fn contains(text: &str, lower: &str) -> bool {
    if lower.is_empty() {
        return true;
    }
    if !text.is_ascii() {
        return text.to_lowercase().contains(lower);
    }
    let mut parts = text.as_bytes().windows(lower.len());
    parts.any(|part| part.eq_ignore_ascii_case(lower.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use soong_protocol::Timestamp;

    use super::*;
    use crate::monitor::sample::{run, tree};

    fn sample_actors() -> ActorIndex {
        let mut actors = ActorIndex::default();
        let mut children = vec![run("main", None)];
        for (at, (id, parent, tokens)) in [
            ("a", "main", 5),
            ("b", "main", 9),
            ("a1", "a", 1),
            ("lost", "nobody", 0),
        ]
        .into_iter()
        .enumerate()
        {
            let mut view = run(id, Some(parent));
            view.started_at = Timestamp::from_millis(i64::try_from(at).unwrap());
            view.run.as_mut().unwrap().tokens = tokens;
            children.push(view);
        }
        actors.apply(tree(children), Timestamp::default());
        actors
    }

    fn drawn(actors: &ActorIndex, view: &TreeView) -> Vec<String> {
        let line = |row: &ActorRow| {
            let hidden = if row.hidden > 0 {
                format!(" +{}", row.hidden)
            } else {
                String::new()
            };
            let context = if row.is_context { " ." } else { "" };
            format!(
                "{}{}{hidden}{context}",
                " ".repeat(row.branches.len()),
                row.key.split_once(':').unwrap().1
            )
        };
        rows(actors, view).iter().map(line).collect()
    }

    #[test]
    fn actors_are_grouped_by_work_and_idle_supervisors_hidden() {
        let actors = sample_actors();
        assert_eq!(
            drawn(&actors, &TreeView::default()),
            [
                "0", " s", "  main", "   a", "    a1", "   b", "  lost", " 0"
            ]
        );
        let supervised = TreeView {
            group_by_supervisor: true,
            ..TreeView::default()
        };
        let want = [
            "0", " 0", "  s", "   s", "    main", "   s", "    a", "    b", "    a1", "    lost",
            " 0",
        ];
        assert_eq!(drawn(&actors, &supervised), want);
    }

    #[test]
    fn rows_follow_sort_filter_and_folding() {
        let actors = sample_actors();
        let of = |change: &dyn Fn(&mut TreeView)| {
            let mut view = TreeView::default();
            change(&mut view);
            drawn(&actors, &view)
        };
        assert_eq!(of(&|v| v.sort = Sort::Tokens)[3..5], ["   b", "   a"]);
        assert_eq!(
            of(&|v| v.filter = "run a1".to_owned()),
            ["0 .", " s .", "  main .", "   a .", "    a1"]
        );
        assert_eq!(of(&|v| v.filter = "no such".to_owned()), ["0 ."]);
        assert_eq!(of(&|v| v.only_urgent = true), ["0 ."]);
        let folded = |v: &mut TreeView| _ = v.folded.insert("run:main".into());
        assert_eq!(of(&folded), ["0", " s", "  main +3", "  lost", " 0"]);
    }

    proptest! {
        #[test]
        fn every_actor_appears_once_for_any_parents(
            parents in prop::collection::vec(prop::option::of(0usize..14), 1..14),
            by_supervision: bool,
            sort in 0usize..7,
        ) {
            let views = parents.iter().enumerate().map(|(at, parent)| {
                // A run's parent is never younger than the run.
                let parent = parent.filter(|parent| *parent < at || *parent >= parents.len());
                run(&format!("r{at}"), parent.map(|parent| format!("r{parent}")).as_deref())
            });
            let mut actors = ActorIndex::default();
            actors.apply(tree(views.collect()), Timestamp::default());
            let view = TreeView { group_by_supervisor: by_supervision, sort: Sort::ALL[sort], ..TreeView::default() };
            let rows = rows(&actors, &view);
            let keys: HashSet<&str> = rows.iter().map(|row| &*row.key).collect();
            prop_assert_eq!(keys.len(), rows.len());
            for at in 0..parents.len() {
                let key = format!("run:r{at}");
                prop_assert!(keys.contains(key.as_str()));
            }
        }
    }
}
