-- Refunds units, but only before the deadline: afterwards they belong to a window that has ended.
--
-- KEYS  the key
-- ARGV  units, deadline (us, by the server's clock)
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] >= tonumber(ARGV[2]) then return 0 end
return redis.call('RL.REFUND', KEYS[1], ARGV[1])
