redis.call('DEL', mine)
if is_mine then redis.call('HDEL', key, 'holder') end
return lives and is_mine and 1 or 0
