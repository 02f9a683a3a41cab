/* SPDX-License-Identifier: Apache-2.0 */
/* Which views are one communicator, and who its members are. */
#include "model_builder.h"

static struct job j;
static struct nt_job job;

static void identify(void) {
  job_settle(&j);
  assert_int_equal(nt_identify(&j.model, &job), 0);
}

static void done(void) {
  nt_job_free(&job);
  job_free(&j);
}

static const struct nt_joint *joint_named(const char *name, uint32_t ordinal) {
  for (uint32_t i = 0; i < job.joint_count; i++)
    if (!strcmp(job.joints[i].name, name) && job.joints[i].ordinal == ordinal)
      return &job.joints[i];
  return NULL;
}

static struct nt_model_view *view_of(uint32_t rank, uint32_t comm) {
  return &job_rank(&j, rank)->views[j.view[rank][comm] - 1];
}

static void views_of_one_id_are_one_communicator(void **state) {
  (void)state;
  job_start(&j, 4);
  job_comm(&j, "A", "0-3");
  job_comm(&j, "B", "1,3");
  identify();
  assert_int_equal(job.joint_count, 2);
  assert_string_equal(set_text(&joint_named("A", 1)->worlds), "0-3");
  assert_string_equal(set_text(&joint_named("B", 1)->worlds), "1,3");
  done();
}

static void names_and_pointers_identify_nothing(void **state) {
  (void)state;
  job_start(&j, 4);
  job_comm(&j, "tp", "0-1");
  job_comm(&j, "tp", "2-3");
  identify();
  assert_int_equal(job.joint_count, 2);
  assert_int_equal(job.joints[0].member_count, 2);
  assert_int_equal(job.joints[1].member_count, 2);
  done();
}

static void members_stand_by_their_rank_in_the_communicator(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  for (uint32_t r = 0; r < 3; r++)
    view_of(r, a)->rank = 2 - (int32_t)r;
  identify();
  for (uint32_t i = 0; i < 3; i++)
    assert_int_equal(nt_member_rank(&job, &job.joints[0].members[i])->world, 2 - i);
  assert_int_equal(nt_member_rank(&job, nt_joint_member(&job.joints[0], 2))->world, 0);
  assert_null(nt_joint_member(&job.joints[0], 3));
  done();
}

static void members_of_a_split_stand_by_key_then_parent_rank(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  for (uint32_t r = 0; r < 3; r++) {
    view_of(r, a)->rank = view_of(r, a)->nranks = -1;
    view_of(r, a)->key = r == 0 ? 7 : 0;
    view_of(r, a)->parent_rank = r;
  }
  identify();
  assert_int_equal(nt_member_rank(&job, &job.joints[0].members[0])->world, 1);
  assert_int_equal(nt_member_rank(&job, &job.joints[0].members[1])->world, 2);
  assert_int_equal(nt_member_rank(&job, &job.joints[0].members[2])->world, 0);
  done();
}

/* The communicator is made from another one; of what a split makes neither rank nor size are told. */
static void derive(uint32_t comm, uint32_t parent, enum nt_comm_origin origin, bool known) {
  for (uint32_t r = 0; r < j.ranks; r++) {
    if (!j.view[r][comm])
      continue;
    struct nt_model_view *view = view_of(r, comm);
    const struct nt_model_view *from = j.view[r][parent] ? view_of(r, parent) : NULL;
    view->origin = (uint16_t)origin;
    memset(view->uid_hash, 0, sizeof view->uid_hash);
    if (!known)
      view->rank = view->nranks = -1;
    if (!from)
      continue;
    view->parent_number = from->number;
    view->parent_rank = (uint32_t)from->rank;
    memcpy(view->parent_id, from->id, sizeof view->parent_id);
  }
}

static void expect_ranks(const char *name, const int32_t *worlds, uint32_t count) {
  const struct nt_joint *joint = NULL;
  for (uint32_t n = 1; n < 4 && !joint; n++)
    joint = joint_named(name, n);
  assert_non_null(joint);
  assert_int_equal(joint->member_count, count);
  assert_int_equal(joint->size, count);
  for (uint32_t i = 0; i < count; i++) {
    assert_int_equal(joint->members[i].comm_rank, i);
    assert_int_equal(nt_member_rank(&job, &joint->members[i])->world, worlds[i]);
  }
}

static void ranks_of_what_is_made_from_a_split_follow_its_own(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t world = job_comm(&j, "world", "0-3"), back = job_comm(&j, "back", "0-3");
  uint32_t part = job_comm(&j, "part", "0-3"), less = job_comm(&j, "less", "0,2-3");
  derive(back, world, NT_COMM_SPLIT, false);
  for (uint32_t r = 0; r < 4; r++)
    view_of(r, back)->key = -(int32_t)r;
  derive(part, back, NT_COMM_SPLIT, false);
  derive(less, back, NT_COMM_SHRINK, false);
  for (uint32_t r = 0; r < 4; r++)
    if (r != 1) {
      view_of(r, less)->excluded_count = 1;
      view_of(r, less)->excluded[0] = (struct nt_excluded){2, 1};
    }
  identify();
  expect_ranks("back", (const int32_t[]){3, 2, 1, 0}, 4);
  expect_ranks("part", (const int32_t[]){3, 2, 1, 0}, 4);
  expect_ranks("less", (const int32_t[]){3, 2, 0}, 3);
  done();
}

static void new_ranks_of_a_grown_communicator_belong_by_its_unique_id(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t old = job_comm(&j, "old", "0-2"), other = job_comm(&j, "other", "3");
  uint32_t grown = job_comm(&j, "grown", "0-3");
  (void)other;
  derive(grown, old, NT_COMM_GROW, true);
  memset(view_of(3, grown)->id, 0x77, 16);
  memset(view_of(3, grown)->uid_hash, 0x55, 16);
  memset(view_of(1, grown)->uid_hash, 0x55, 16);
  identify();
  expect_ranks("grown", (const int32_t[]){0, 1, 2, 3}, 4);
  assert_int_equal(joint_named("grown", 1)->parent, joint_named("old", 1) - job.joints);
  done();
}

static void what_was_tried_in_vain_and_repeated_is_no_member(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t vain = job_comm(&j, "A", "1"), made = job_comm(&j, "A", "0-1");
  memcpy(view_of(1, vain)->id, view_of(1, made)->id, 16);
  view_of(1, vain)->state = NT_COMM_FAILED;
  view_of(1, vain)->rank = 2;
  view_of(1, vain)->nranks = 2;
  identify();
  assert_int_equal(job.joint_count, 1);
  assert_int_equal(job.joints[0].member_count, 2);
  done();
}

/* Process 0 is rank 0, and rank 1 as well, of a job without a launcher. */
static void a_process_of_several_ranks_has_them_all(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t all = job_comm(&j, "A", "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    job_rank(&j, r)->world = 2 * (int32_t)r;
    job_rank(&j, r)->world_size = view_of(r, all)->nranks = 4;
    view_of(r, all)->rank = 2 * (int32_t)r;
    struct nt_model_view *second = nt_model_add_view(job_rank(&j, r));
    *second = *view_of(r, all);
    second->number = 2;
    second->rank = 2 * (int32_t)r + 1;
    second->sums = NULL;
  }
  identify();
  assert_int_equal(job.model->expected, 4);
  assert_int_equal(nt_model_absent(job.model), 0);
  assert_true(nt_model_has(job.model, 1) && nt_model_has(job.model, 3));
  assert_int_equal(nt_rank_set_count(&joint_named("A", 1)->absent_worlds), 0);
  done();
}

static void ordinals_count_communicators_of_the_same_members(void **state) {
  (void)state;
  job_start(&j, 4);
  job_comm(&j, "first", "0-3");
  job_comm(&j, "pair", "0-1");
  job_comm(&j, "second", "0-3");
  identify();
  assert_non_null(joint_named("first", 1));
  assert_non_null(joint_named("pair", 1));
  assert_non_null(joint_named("second", 2));
  done();
}

static void a_member_without_a_trace_is_named_where_nobody_else_fits(void **state) {
  (void)state;
  job_start(&j, 4);
  job_comm(&j, "A", "0-3");
  job_comm(&j, "B", "1-3");
  job_drop(&j, 2);
  identify();
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(job.joints[i].absent, 1);
    assert_true(job.joints[i].absent_known);
    assert_string_equal(set_text(&job.joints[i].absent_worlds), "2");
  }
  done();
}

static void of_two_without_a_trace_none_is_named_that_may_be_the_other(void **state) {
  (void)state;
  job_start(&j, 5);
  job_comm(&j, "A", "0-4");
  job_comm(&j, "B", "0,2,4");
  job_drop(&j, 2);
  job_drop(&j, 1);
  identify();
  const struct nt_joint *b = joint_named("B", 1);
  assert_int_equal(b->absent, 1);
  assert_false(b->absent_known);
  assert_int_equal(nt_rank_set_count(&b->absent_worlds), 0);
  done();
}

static void the_size_of_a_split_is_not_known_while_its_parent_lacks_members(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t a = job_comm(&j, "A", "0-3"), half = job_comm(&j, "half", "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    view_of(r, half)->nranks = -1;
    memcpy(view_of(r, half)->parent_id, view_of(r, a)->id, 16);
  }
  job_drop(&j, 3);
  identify();
  const struct nt_joint *joint = joint_named("half", 1);
  assert_false(joint->size_known);
  assert_int_equal(joint->absent, 1); /* rank 3 may be in it */
  done();
}

/* A split of all, of members by their world ranks, whose ranks and size nobody tells. */
static uint32_t open_split(const char *name, uint32_t parent, const char *members) {
  const uint32_t comm = job_comm(&j, name, members);
  derive(comm, parent, NT_COMM_SPLIT, false);
  return comm;
}

static void send_down(uint32_t comm, uint32_t first, uint32_t count) {
  for (uint32_t turn = 0; turn < 3; turn++)
    for (uint32_t r = 0; r + 1 < count; r++) {
      job_send(&j, first + r, comm, r + 1, 10);
      job_recv(&j, first + r + 1, comm, r, 10);
    }
}

static void places_in_a_split_that_lacks_a_member_follow_from_its_messages(void **state) {
  (void)state;
  job_start(&j, 6);
  const uint32_t a = job_comm(&j, "A", "0-5"), low = open_split("low", a, "0-2"),
                 high = open_split("high", a, "3-5");
  send_down(low, 0, 3);
  send_down(high, 3, 3);
  job_drop(&j, 1);
  identify();
  const struct nt_joint *joint = joint_named("low", 1);
  assert_true(joint->size_known);
  assert_int_equal(joint->size, 3);
  assert_int_equal(joint->members[0].comm_rank, 0);
  assert_int_equal(joint->members[1].comm_rank, 2);
  assert_true(nt_rank_set_has(&joint->absent_worlds, 1));
  joint = joint_named("high", 1);
  assert_true(joint->size_known); /* who is missing from one part is not missing from another */
  assert_int_equal(joint->absent, 0);
  done();
}

static void places_that_fit_in_two_ways_are_not_known(void **state) {
  (void)state;
  job_start(&j, 4);
  const uint32_t a = job_comm(&j, "A", "0-3"), half = open_split("half", a, "0-2");
  for (uint32_t turn = 0; turn < 3; turn++) /* nobody with a trace is the other side */
    job_recv(&j, 2, half, 0, 10);
  job_drop(&j, 0);
  job_drop(&j, 1);
  identify();
  const struct nt_joint *joint = joint_named("half", 1);
  assert_false(joint->size_known);
  assert_false(joint->numbered);
  done();
}

static void views_whose_creation_was_not_seen_are_counted_and_join_nothing(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  for (uint32_t r = 0; r < 2; r++)
    memset(view_of(r, a)->id, 0, 16);
  identify();
  assert_int_equal(job.joint_count, 0);
  assert_int_equal(job.unknown_views, 2);
  assert_int_equal(job.places[0][0].joint, NT_NONE);
  done();
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(views_of_one_id_are_one_communicator),
      TEST(names_and_pointers_identify_nothing),
      TEST(members_stand_by_their_rank_in_the_communicator),
      TEST(members_of_a_split_stand_by_key_then_parent_rank),
      TEST(ranks_of_what_is_made_from_a_split_follow_its_own),
      TEST(new_ranks_of_a_grown_communicator_belong_by_its_unique_id),
      TEST(what_was_tried_in_vain_and_repeated_is_no_member),
      TEST(a_process_of_several_ranks_has_them_all),
      TEST(ordinals_count_communicators_of_the_same_members),
      TEST(a_member_without_a_trace_is_named_where_nobody_else_fits),
      TEST(of_two_without_a_trace_none_is_named_that_may_be_the_other),
      TEST(the_size_of_a_split_is_not_known_while_its_parent_lacks_members),
      TEST(places_in_a_split_that_lacks_a_member_follow_from_its_messages),
      TEST(places_that_fit_in_two_ways_are_not_known),
      TEST(views_whose_creation_was_not_seen_are_counted_and_join_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
